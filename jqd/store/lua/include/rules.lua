-- Rules, of which of each kind and name the highest revision stays, and of equal ones the greater. Needs keys, now, sequence.
-- Gives take_rule(member, revision, packed, now_us) → whether it holds now and did not before.
local function is_above(one, other) -- by their bytes: `>` goes by the locale of the server
  for at = 1, math.min(#one, #other) do
    local a, b = one:byte(at), other:byte(at)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

local function take_rule(member, revision, packed, now_us)
  local row = redis.call('HGET', K.rules, member) or ''
  local number = tonumber(row:match('^(%d+):') or nil) or 0
  local new = revision .. ':' .. packed
  if tonumber(revision) > number or (tonumber(revision) == number and row ~= new and is_above(new, row)) then
    redis.call('ZADD', K.ruled, next_in(K.ruled, now_us), member)
    redis.call('HSET', K.rules, member, new)
    return true
  end
  return false
end
