-- Claims that the store has forgotten: their fences are between the highest that it knew (`low`) and the begin of its
-- next life (`high`); only journals know of them, so their outcomes count. If the server's clock was set back, there
-- may be such fences above `high`: whoever reports one moves `high`, until something is claimed in this life; from then
-- on their ranges are noted in `late`.
local LATE_MAX = 8  -- ranges; each is of a daemon that came after others had claimed again; the oldest is dropped

-- Returns the highest fence given.
local function present()
  local fence = redis.call('GET', K.fence) or '0'
  if not fence:match('^%d+$') then
    fail('JQD_BAD_VALUE', 'fence')
  end
  return tonumber(fence)
end

-- Begins a life: all later fences are above those of now, and above `reported`.
function Forgotten.begin_life(id, now_us, reported)
  local known = present()
  local low, settled, run, before = unpack(redis.call('HMGET', K.life, 'low', 'settled', 'run', 'id'))
  if not low or settled == (run or '') .. '.' .. (before or '') then
    low = known
  end
  -- A life that never settled may not have got all back: what it had forgotten stays forgotten.
  local high = digits(math.max(known, now_us, reported))
  redis.call('SET', K.fence, high)
  redis.call('HSET', K.life, 'id', id, 'low', digits(math.min(tonumber(low) or 0, known)), 'high', high,
    'began', digits(now_us), 'unclaimed', '1')
  redis.call('HDEL', K.life, 'late')
end

-- Returns whether this is an older life than the one that a caller knows (look.lua). An unsettled life in which nobody
-- has claimed may go on: nothing is lost.
function Forgotten.went_back(reported, before)
  local id, run, settled, high, unclaimed = unpack(redis.call('HMGET', K.life, 'id', 'run', 'settled', 'high',
    'unclaimed'))
  local is_settled = settled and settled == (run or '') .. '.' .. (id or '')
  local is_older = before > (tonumber(high or nil) or before)
  return is_settled and reported > present() or is_older and (is_settled or not unclaimed)
end

-- Takes a fence that a caller knows: later ones will be higher, and if it was never given here, it is forgotten.
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

-- Takes the fences of outcomes. A job that is held under its fence was claimed here, as nearly all were.
function Forgotten.tell_of(outcomes, holds)
  local highest = 0
  for _, outcome in ipairs(outcomes) do
    local hold = holds[outcome.id]
    highest = hold and hold.fence == outcome.fence and highest or math.max(highest, outcome.fence)
  end
  Forgotten.tell(highest)
end

-- Returns two functions of a fence: whether it is forgotten; whether it is of an earlier life, so that what is told of
-- it may be told again.
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
