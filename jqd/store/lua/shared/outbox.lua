-- Followers that wait to be pushed, in the outbox or on the shelf of their tenant.
local STEP = 10  -- entries read at once: each may have a megabyte

-- Reads entries from that place on, behind what `answer` has; at least one, if there is one. Returns how many.
function Outbox.read(key, first, limit, bytes_max, answer)
  local bytes, found = 0, 0
  while found < limit and bytes < bytes_max do
    local step = math.min(STEP, limit - found)
    local entries = redis.call('ZRANGE', key, first + found, first + found + step - 1)
    for _, entry in ipairs(entries) do
      found, bytes = found + 1, bytes + #entry
      answer[#answer + 1] = entry
      if bytes >= bytes_max then
        break
      end
    end
    if #entries < step then
      break
    end
  end
  return found
end

-- Moves the entries in ARGV, from the argument `at` on, which stay as old as they are. Returns how many lay there.
function Outbox.move(from, to, at)
  local moved = 0
  for place = at, #ARGV do
    local came_ms = redis.call('ZSCORE', from, ARGV[place])  -- none: another daemon has done something with it
    if came_ms then
      redis.call('ZREM', from, ARGV[place])
      redis.call('ZADD', to, 'LT', came_ms, ARGV[place])
      moved = moved + 1
    end
  end
  return moved
end

-- After some left the shelf of that tenant.
function Outbox.tidy(tenant)
  if redis.call('EXISTS', shelf_key(tenant)) == 0 then
    redis.call('ZREM', K.shelves, tenant)
  end
end
