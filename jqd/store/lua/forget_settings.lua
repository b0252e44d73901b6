-- Drops settings that nobody needs, if they are still those that the caller means and their workers gave no sign since.
-- ARGV     now_ms, number of the last sign that the caller knows, then flat: kind NUL name, revision, id of its worker
--          or nothing
-- Returns  places, from 0, of settings that stay: another one counts, or its worker gave a sign
-- Errors   none
-- Cost     O(settings · log settings)
register('forget_settings', {'allow-oom'}, function()
  local known_sign = tonumber(ARGV[2])
  local FIRST = 3

  local stay = {}
  local meant = {unpack(ARGV, FIRST)}
  for at = 1, #meant, 3 do
    local member, revision, worker = meant[at], meant[at + 1], meant[at + 2]
    local known = (redis.call('HGET', K.rules, member) or ''):match('^(%d+):')
    local sign = tonumber(redis.call('ZSCORE', K.alive, worker) or nil) or 0
    if known == revision and sign <= known_sign then
      redis.call('HDEL', K.rules, member)
      redis.call('ZREM', K.ruled, member)
      redis.call('ZREM', K.alive, worker)
    elseif known then
      table.insert(stay, (at - 1) / 3)
    end
  end
  return stay
end)
