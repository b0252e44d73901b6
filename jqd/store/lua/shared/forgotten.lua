-- Claims that the store has forgotten. The store knew claims up to its highest fence; claims between that fence and the
-- beginning of its next life are in the journals only.
-- Gives begin_life(id, now_us): the present fences end an era, and all later ones are higher than any before;
-- forgotten(): a function fence → whether it was given in a time that the store does not remember; one fence → whether
-- it was given before this life: what is told of it may be told again.
function Forgotten.begin_life(id, now_us)
  local known = redis.call('GET', K.fence) or '0'
  if not known:match('^%d+$') then
    fail('JQD_BAD_VALUE', 'fence')
  end
  local low, settled, run, before = unpack(redis.call('HMGET', K.life, 'low', 'settled', 'run', 'id'))
  if not low or settled == (run or '') .. '.' .. (before or '') then
    low = known
  end
  -- A life that never settled may not have got back everything: what it had forgotten stays forgotten.
  local high = digits(math.max(tonumber(known), now_us))
  redis.call('SET', K.fence, high)
  redis.call('HSET', K.life, 'id', id, 'low', digits(math.min(tonumber(low) or 0, tonumber(known))), 'high', high,
    'began', digits(now_us))
end

function Forgotten.forgotten()
  local low, high = unpack(redis.call('HMGET', K.life, 'low', 'high'))
  low, high = tonumber(low or nil), tonumber(high or nil)
  return function(fence)
    return low and high and low < fence and fence <= high
  end, function(fence)
    return (high or 0) >= fence
  end
end
