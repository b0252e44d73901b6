-- Rules, of which of each kind and name the highest revision stays. Needs keys, now, sequence.
-- Gives take_rule(member, revision, packed, now_us) → whether it holds now and did not before.
local function take_rule(member, revision, packed, now_us)
  local known = (redis.call('HGET', K.rules, member) or ''):match('^(%d+):')
  if tonumber(revision) > (tonumber(known or nil) or 0) then
    redis.call('ZADD', K.ruled, next_in(K.ruled, now_us), member)
    redis.call('HSET', K.rules, member, revision .. ':' .. packed)
    return true
  end
  return false
end
