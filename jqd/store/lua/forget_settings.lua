-- Drops rules that nobody needs any more, if they are still the ones that the caller means and nobody gave a sign
-- since.
-- ARGV     now_ms, number of the last sign the caller was told, then flat: kind NUL name, revision, id of its worker or
--          nothing
-- Returns  of these the rules that stay, by their places from 0: another holds, or its worker was heard of
-- Errors   JQD_ARGUMENT; none after the first write
-- Cost     O(rules · log rules)
register('forget_settings', {'allow-oom'}, function()
  local told = number(ARGV[2], 'told')
  local FIRST = 3

  local stay = {}
  local meant = {unpack(ARGV, FIRST)}
  for at = 1, #meant, 3 do
    local member, revision, worker = meant[at], meant[at + 1], meant[at + 2]
    local known = (redis.call('HGET', K.rules, member) or ''):match('^(%d+):')
    local sign = tonumber(redis.call('ZSCORE', K.alive, worker) or nil) or 0
    if known == revision and sign <= told then
      redis.call('HDEL', K.rules, member)
      redis.call('ZREM', K.ruled, member)
      redis.call('ZREM', K.alive, worker)
    elseif known then
      table.insert(stay, (at - 1) / 3)
    end
  end
  return stay
end)
