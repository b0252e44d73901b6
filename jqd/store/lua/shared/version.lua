-- The version of the constraints: the sum of the digests of their matchers.

-- Notes it, after a constraint came, changed or went, or a life began.
function Version.note_version()
  local sum, some = 0, false
  for _, row in ipairs(redis.call('HVALS', K.limits)) do
    sum, some = (sum + (tonumber(row:match(' (%d+)$') or nil) or 0)) % 4294967296, true
  end
  redis.call('HSET', K.life, 'version', some and string.format('%.0f', sum) or '')
end
