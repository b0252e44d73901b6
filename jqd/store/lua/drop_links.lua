-- Drops notes on jobs whose children were told, or whose parents were asked.
-- ARGV     now_ms, rest_until_ms of take_links, or 0: a note that was renewed or taken since is due at another time,
--          and stays; then per entry of `links`: entry, stage that the children were told, how many children that were
--          taken or skipped could not be told, number of children that were told, these
-- Returns  entries with children that were not taken. One whose other children could not be told rests
-- Errors   none
-- Cost     O(children · log children)
register('drop_links', {'allow-oom'}, function()
  local now_ms = clock(ARGV[1])
  local rest_until_ms = tonumber(ARGV[2])
  local FIRST, FIELDS = 3, 4

  local entries, at = {}, FIRST
  while at <= #ARGV do
    local note = {entry = ARGV[at], stage = tonumber(ARGV[at + 1]), failed = tonumber(ARGV[at + 2]),
      count = tonumber(ARGV[at + 3]), first = at + FIELDS}
    entries[#entries + 1] = note
    at = note.first + note.count
  end
  local left = {}
  for _, note in ipairs(entries) do
    local key = K.children .. note.entry:sub(2)
    for place = note.first, note.first + note.count - 1 do
      redis.call('ZADD', key, 'XX', 'GT', digits(note.stage), ARGV[place])
    end
    local untold = note.entry:sub(1, 1) == 'e' and redis.call('ZCOUNT', key, 0, '(' .. digits(note.stage)) or 0
    if untold > note.failed then
      redis.call('ZADD', K.links, now_ms, note.entry)
      left[#left + 1] = note.entry
    elseif untold > 0 then
      -- it rests until take_links said, or is due when it was renewed
    elseif rest_until_ms == 0 or tonumber(redis.call('ZSCORE', K.links, note.entry) or '0') == rest_until_ms then
      redis.call('ZREM', K.links, note.entry)
    end
  end
  return left
end)
