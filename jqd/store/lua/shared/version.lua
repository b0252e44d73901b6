-- By which constraints jobs are matched, as one number: the sum of the digests of their matchers.
-- After a constraint came, changed or went, or the life was begun.
function Version.note_version()
  local sum, some = 0, false
  for _, row in ipairs(redis.call('HVALS', K.limits)) do
    sum, some = (sum + (tonumber(row:match(' (%d+)$') or nil) or 0)) % 4294967296, true
  end
  redis.call('HSET', K.life, 'version', some and string.format('%.0f', sum) or '')
end
