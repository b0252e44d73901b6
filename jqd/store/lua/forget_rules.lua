#!lua flags=allow-oom
-- Drops rules that nobody needs any more, if they are still the ones that the caller means and nobody gave a sign since.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, number of the last sign the caller was told, then flat: kind NUL name, revision, id of its worker
-- Returns  how many went
-- Errors   JQD_WRONG_TYPE, JQD_ARGUMENT; none after the first write
-- Cost     O(rules · log rules)
--@include fail keys
local told = number(ARGV[2], 'told')
local FIRST = 3

expect('rules', 'ruled', 'alive')
local gone = 0
local meant = {unpack(ARGV, FIRST)}
for at = 1, #meant, 3 do
  local member, revision, worker = meant[at], meant[at + 1], meant[at + 2]
  local known = (redis.call('HGET', K.rules, member) or ''):match('^(%d+):')
  local sign = tonumber(redis.call('ZSCORE', K.alive, worker) or nil) or 0
  if known == revision and sign <= told then
    redis.call('HDEL', K.rules, member)
    redis.call('ZREM', K.ruled, member)
    redis.call('ZREM', K.alive, worker)
    gone = gone + 1
  end
end
return gone
