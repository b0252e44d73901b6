-- The time: what the caller sent (tests), or Redis TIME when that is 0. Needs fail.
-- Gives clock(text) → ms, µs; digits(n): a whole number as text, exact up to 2^53.
local function clock(text)
  local now_ms = number(text, 'now_ms')
  if now_ms > 0 then
    return now_ms, now_ms * 1000
  end
  local time = redis.call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  return math.floor(now_us / 1000), now_us
end

-- Scripts spell one number again and again, and the server takes its time for it.
local digits
do
  local spelled, spelling
  function digits(n)
    if n ~= spelled then
      spelled, spelling = n, string.format('%.0f', n)
    end
    return spelling
  end
end
