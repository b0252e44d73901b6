#!lua flags=allow-oom
-- Notes signs of life of workers, and rules that stand in no journal, and tells which rules and whose signs are new since the caller asked last.
-- KEYS     all (include/keys.lua)
-- ARGV     now_ms, identity as the caller knows it, number of the last rule and of the last sign it was told, at most so
--          many of each, how many rules follow, these flat: kind NUL name, revision, packed rule; then the ids of
--          workers that were heard of
-- Returns  number of the last rule told, packed rules; number of the last sign told, ids; those of the caller's ids that
--          no rule knows
-- Errors   JQD_STORE_CHANGED, JQD_WRONG_TYPE, JQD_ARGUMENT; none after the first write
-- Cost     O((told + said + ids) · log workers)
--@include fail keys now life sequence rules
local _, now_us = clock(ARGV[1])
local since_rule, since_sign = ARGV[3], ARGV[4]
local limit = number(ARGV[5], 'limit')
local FIRST = 7
local ids = FIRST + 3 * number(ARGV[6], 'count')

expect('rules', 'ruled', 'alive', 'life')
expect_life(ARGV[2])
number(since_rule, 'since')
number(since_sign, 'since')
for at = FIRST, ids - 1, 3 do
  number(ARGV[at + 1], 'revision')
end
for at = FIRST, ids - 1, 3 do
  take_rule(ARGV[at], ARGV[at + 1], ARGV[at + 2], now_us)
end
local unknown = {}
for at = ids, #ARGV do
  if redis.call('HEXISTS', K.rules, 'worker\0' .. ARGV[at]) == 0 then
    table.insert(unknown, ARGV[at])
  else
    redis.call('ZADD', K.alive, next_in(K.alive, now_us), ARGV[at])
  end
end
local members, rule_at = changed_since(K.ruled, since_rule, limit)
local rules = {}
if members[1] then
  for _, row in ipairs(redis.call('HMGET', K.rules, unpack(members))) do
    table.insert(rules, row and row:match('^%d+:(.*)$') or '')
  end
end
local signs, sign_at = changed_since(K.alive, since_sign, limit)
return {rule_at, rules, sign_at, signs, unknown}
