-- What was done for jobs that wait for others, or that ended.
-- ARGV     now_ms, until when they rest, as take_links told, or 0: what was noted or taken since then is due at
--          another time, and stays; then per entry of `links`: it, stage of which children were told, how many others
--          were taken, or passed over, and could not be told now, number of those that were, these
-- Returns  the entries with children that were not taken. One that has none but those that could not be told rests
-- Errors   JQD_ARGUMENT
-- Cost     O(children · log children)
register('drop_links', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local rest_until_ms = number(ARGV[2], 'rest_until_ms')
  local FIRST, FIELDS = 3, 4

  local entries, at = {}, FIRST
  while at <= #ARGV do
    local one = {entry = ARGV[at], stage = number(ARGV[at + 1], 'stage'), failed = number(ARGV[at + 2], 'failed'),
      count = number(ARGV[at + 3], 'count'), first = at + FIELDS}
    entries[#entries + 1] = one
    at = one.first + one.count
  end
  local left = {}
  for _, one in ipairs(entries) do
    local key = K.children .. one.entry:sub(2)
    for place = one.first, one.first + one.count - 1 do
      redis.call('ZADD', key, 'XX', 'GT', digits(one.stage), ARGV[place])
    end
    local untold = one.entry:sub(1, 1) == 'e' and redis.call('ZCOUNT', key, 0, '(' .. digits(one.stage)) or 0
    if untold > one.failed then
      redis.call('ZADD', K.links, now_ms, one.entry)
      left[#left + 1] = one.entry
    elseif untold > 0 then
      -- it rests as take_links had it, or is due where it was noted anew
    elseif rest_until_ms == 0 or tonumber(redis.call('ZSCORE', K.links, one.entry) or '0') == rest_until_ms then
      redis.call('ZREM', K.links, one.entry)
    end
  end
  return left
end)
