-- Followers that are to be pushed: in the outbox, or on their tenant's shelf while they wait for its quota.
local STEP = 10  -- entries read at once: each may have a megabyte

-- Appends entries from place `first` on to `answer`, at least one if there is one. Returns how many.
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

-- Moves the entries in ARGV, from argument `at` on; they keep their dates. Returns how many were there.
function Outbox.move(from, to, at)
  local moved = 0
  for place = at, #ARGV do
    local came_ms = redis.call('ZSCORE', from, ARGV[place])  -- nil: another daemon took it
    if came_ms then
      redis.call('ZREM', from, ARGV[place])
      redis.call('ZADD', to, 'LT', came_ms, ARGV[place])
      moved = moved + 1
    end
  end
  return moved
end

-- Drops a tenant from `shelves` if its shelf is empty.
function Outbox.tidy(tenant)
  if redis.call('EXISTS', shelf_key(tenant)) == 0 then
    redis.call('ZREM', K.shelves, tenant)
  end
end
