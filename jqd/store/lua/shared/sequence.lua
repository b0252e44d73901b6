-- Numbered changes: a zset of names by the number of their last change. Readers ask for those above the last number
-- that they know. Numbers go on growing in an emptied store.

-- Returns the next number, as text.
function Sequence.next_in(key, now_us)
  local last = redis.call('ZRANGE', key, -1, -1)[1]
  local number = last and tonumber(redis.call('ZSCORE', key, last)) or 0
  return digits(math.max(number + 1, now_us))
end

-- Returns the names that changed since that number, in order.
function Sequence.changed_since(key, since, limit)
  return redis.call('ZRANGE', key, '(' .. since, '+inf', 'BYSCORE', 'LIMIT', 0, limit)
end

-- Returns the number of a name's last change, as text.
function Sequence.number_of(key, name)
  return digits(tonumber(redis.call('ZSCORE', key, name)))
end
