-- Notes signs of life of workers, and rules that stand in no journal, and tells which rules and whose signs are new
-- since the caller asked last.
-- ARGV     now_ms, identity as the caller knows it, number of the last rule and of the last sign it was told, at most
--          so many of each, at most so many bytes of rules after the first, how many rules follow, these flat: kind NUL
--          name, revision, packed rule; then the ids of workers that were heard of
-- Returns  number of the last rule told, packed rules; number of the last sign told, ids, how many milliseconds ago
--          each of these was; those of the caller's ids that no rule knows; 1 where there may be more to tell; the time
--          in ms
-- Errors   JQD_STORE_CHANGED, JQD_ARGUMENT; none after the first write
-- Cost     O((told + said + ids) · log workers)
register('follow_settings', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local since_rule, since_sign = ARGV[3], ARGV[4]
  local limit, bytes_max = number(ARGV[5], 'limit'), number(ARGV[6], 'bytes')
  local FIRST = 8
  local ids = FIRST + 3 * number(ARGV[7], 'count')

  Life.expect_life(ARGV[2])
  number(since_rule, 'since')
  number(since_sign, 'since')
  for at = FIRST, ids - 1, 3 do
    number(ARGV[at + 1], 'revision')
  end
  for at = FIRST, ids - 1, 3 do
    Rules.take_rule(ARGV[at], ARGV[at + 1], ARGV[at + 2], now_us)
  end
  local unknown = {}
  for at = ids, #ARGV do
    if redis.call('HEXISTS', K.rules, 'worker\0' .. ARGV[at]) == 0 then
      table.insert(unknown, ARGV[at])
    else
      redis.call('ZADD', K.alive, Sequence.next_in(K.alive, now_us), ARGV[at])
    end
  end
  local members, rules, bytes = Sequence.changed_since(K.ruled, since_rule, limit), {}, 0
  for at, member in ipairs(members) do
    local row = redis.call('HGET', K.rules, member) or ''
    bytes = bytes + #row
    if at > 1 and bytes > bytes_max then
      break
    end
    rules[at] = row:match('^%d+:(.*)$') or ''
  end
  local signs, ages_ms = Sequence.changed_since(K.alive, since_sign, limit), {}
  for at, sign in ipairs(signs) do
    ages_ms[at] = math.max(0, math.floor((now_us - Sequence.number_of(K.alive, sign)) / 1000))
  end
  return {
    rules[1] and Sequence.number_of(K.ruled, members[#rules]) or since_rule,
    rules,
    signs[1] and Sequence.number_of(K.alive, signs[#signs]) or since_sign,
    signs,
    ages_ms,
    unknown,
    (#rules < #members or #members == limit or #signs == limit) and 1 or 0,
    digits(now_ms),
  }
end)
