-- Claims that the store has forgotten. The store knew claims up to its highest fence; claims between that fence and the
-- beginning of its next life are in the journals only. Where the server's clock is behind that of the one before, they
-- may be above `high`: what tells of them moves it, for as long as nothing was claimed in this life; from then on their
-- numbers are noted beside it.
local LATE_MAX = 8  -- ranges, of daemons that come when others have claimed again; the oldest goes

-- The highest fence given.
local function present()
  local fence = redis.call('GET', K.fence) or '0'
  if not fence:match('^%d+$') then
    fail('JQD_BAD_VALUE', 'fence')
  end
  return tonumber(fence)
end

-- The present fences end an era, and all later ones are higher than any before.
function Forgotten.begin_life(id, now_us, told)
  local known = present()
  local low, settled, run, before = unpack(redis.call('HMGET', K.life, 'low', 'settled', 'run', 'id'))
  if not low or settled == (run or '') .. '.' .. (before or '') then
    low = known
  end
  -- A life that never settled may not have got back everything: what it had forgotten stays forgotten.
  local high = digits(math.max(known, now_us, told))
  redis.call('SET', K.fence, high)
  redis.call('HSET', K.life, 'id', id, 'low', digits(math.min(tonumber(low) or 0, known)), 'high', high,
    'began', digits(now_us), 'unclaimed', '1')
  redis.call('HDEL', K.life, 'late')
end

-- Whether this is an older life than the one of which a caller knows (look.lua). In a life that is not settled all are
-- waited for, and until somebody claims nothing is lost if it goes on.
function Forgotten.went_back(told, before)
  local id, run, settled, high, unclaimed = unpack(redis.call('HMGET', K.life, 'id', 'run', 'settled', 'high',
    'unclaimed'))
  local is_settled = settled and settled == (run or '') .. '.' .. (id or '')
  local is_older = before > (tonumber(high or nil) or before)
  return is_settled and told > present() or is_older and (is_settled or not unclaimed)
end

-- A caller knows of that fence: all later ones are higher, and if this store never gave it, it is forgotten.
function Forgotten.tell(fence)
  local high, unclaimed, late = unpack(redis.call('HMGET', K.life, 'high', 'unclaimed', 'late'))
  if fence <= (tonumber(high or nil) or fence) then
    return
  end
  local known = present()
  if unclaimed then
    redis.call('HSET', K.life, 'high', digits(fence))
  elseif fence > known then
    local ranges = {digits(known) .. ' ' .. digits(fence)}
    for range in (late or ''):gmatch('%d+ %d+') do
      ranges[#ranges + 1] = range
    end
    redis.call('HSET', K.life, 'late', table.concat(ranges, ' ', 1, math.min(#ranges, LATE_MAX)))
  end
  if fence > known then
    redis.call('SET', K.fence, digits(fence))
    call.highest = nil
  end
end

-- The same of those of outcomes. What is in a hand under its fence was given here, as nearly all is.
function Forgotten.tell_of(outcomes, in_hand)
  local told = 0
  for _, one in ipairs(outcomes) do
    local hold = in_hand[one.id]
    told = hold and hold.fence == one.fence and told or math.max(told, one.fence)
  end
  Forgotten.tell(told)
end

-- A function that says of a fence whether it was given in a time that the store does not remember; and one that says
-- whether it was given before this life: what is told of it may be told again.
function Forgotten.forgotten()
  local low, high, late = unpack(redis.call('HMGET', K.life, 'low', 'high', 'late'))
  low, high = tonumber(low or nil), tonumber(high or nil)
  local function is_late(fence)
    for first, last in (late or ''):gmatch('(%d+) (%d+)') do
      if tonumber(first) < fence and fence <= tonumber(last) then
        return true
      end
    end
    return false
  end
  return function(fence)
    return low and high and low < fence and fence <= high or late and is_late(fence)
  end, function(fence)
    return (high or 0) >= fence or late and is_late(fence)
  end
end
