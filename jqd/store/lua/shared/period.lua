-- How fast jobs age at each daemon (ageing.lua).
-- Gives say_period(sysid, period_ms) → flat, of the living daemons where it is another: sysid, period_ms. 0: they do not age there; where no living
-- daemon lets them age nothing is kept of it.
function Period.say_period(sysid, period_ms)
  if period_ms == 0 and redis.call('EXISTS', K.aged) == 0 then
    return {}
  end
  local rows = redis.call('ZRANGE', K.aged, '-inf', '(0', 'BYSCORE', 'WITHSCORES')
  local others, ages, periods = {}, period_ms > 0, {}
  for at = 1, #rows, 2 do
    periods[rows[at]:sub(2)] = -tonumber(rows[at + 1])
  end
  for other in pairs(periods) do
    if other ~= sysid and not Members.member(other) then
      redis.call('ZREM', K.aged, '@' .. other)
    end
  end
  for at, row in ipairs(redis.call('HGETALL', K.members)) do
    if at % 2 == 1 and row ~= sysid then
      local _, epoch = Members.member(row)
      local its = periods[row] or 0
      if epoch ~= 0 and its ~= period_ms then
        others[#others + 1], others[#others + 2] = row, string.format('%.0f', its)
      end
      ages = ages or epoch ~= 0 and its > 0
    end
  end
  if period_ms > 0 then
    redis.call('ZADD', K.aged, string.format('%.0f', -period_ms), '@' .. sysid)
  elseif ages then
    redis.call('ZREM', K.aged, '@' .. sysid)
  else
    redis.call('UNLINK', K.aged)
  end
  return others
end
