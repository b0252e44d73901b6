-- The order of waiting jobs: by priority, then by id, byte by byte.
Order.has_no_locale = 'B' < 'a'  -- otherwise Lua's `<` follows the server's locale

-- Returns whether the first of two jobs is before the other.
function Order.precedes(priority, id, other_priority, other_id)
  if priority ~= other_priority then
    return priority < other_priority
  elseif Order.has_no_locale then
    return id < other_id
  end
  for at = 1, #id do
    local byte, other = id:byte(at), other_id:byte(at)
    if byte ~= other then
      return other ~= nil and byte < other
    end
  end
  return #id < #other_id
end

-- Returns that for two ids of one priority.
function Order.before(id, other) return Order.precedes(0, id, 0, other) end

-- Returns when (ms) an id was made.
function Order.pushed_ms(id)
  local DIGITS, ms = '0123456789ABCDEFGHJKMNPQRSTVWXYZ', 0
  for letter in id:sub(1, 10):gmatch('.') do
    ms = 32 * ms + (DIGITS:find(letter, 1, true) or 1) - 1
  end
  return ms
end

-- Returns how many members of a set are before a given one, which need not be in it. `too`: count it as well. Halves
-- the set: O((log members)²).
function Order.rank_of(key, score, id, too)
  local low, high = 0, redis.call('ZCARD', key)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local row = redis.call('ZRANGE', key, middle, middle, 'WITHSCORES')
    if Order.precedes(tonumber(row[2]), row[1], score, id) or too and row[1] == id and tonumber(row[2]) == score then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end
