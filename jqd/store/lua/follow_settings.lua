-- Saves signs of life of workers, and settings that are in no journal. Returns the settings and signs that are new to
-- the caller.
-- ARGV     now_ms, identity of the store, number of the last setting and of the last sign that the caller knows, limit
--          of each, limit of bytes of settings (one comes in any case), how many settings follow, these flat: kind NUL
--          name, revision, packed setting; then ids of workers that gave the caller a sign
-- Returns  number of the last setting, packed settings; number of the last sign, ids, how many ms ago each was; those
--          of the caller's ids without a setting; 1: there may be more; now_ms; 1: all daemons came through in this
--          life, so that the settings are all that their journals have
-- Errors   JQD_STORE_CHANGED; none after the first write
-- Cost     O((returned + saved + ids) · log workers)
register('follow_settings', {'allow-oom'}, function()
  local now_ms, now_us = clock(ARGV[1])
  local identity, since_rule, since_sign = ARGV[2], ARGV[3], ARGV[4]
  local limit, bytes_max = tonumber(ARGV[5]), tonumber(ARGV[6])
  local FIRST = 8
  local ids = FIRST + 3 * tonumber(ARGV[7])

  Life.expect_life(identity)
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
    redis.call('HGET', K.life, 'settled') == identity and 1 or 0,
  }
end)
