-- A sequence of changes: a zset of names by the number of their last one, which readers ask for from where they were.
-- Numbers do not begin anew with an emptied store.
-- The next number, as text.
function Sequence.next_in(key, now_us)
  local last = redis.call('ZRANGE', key, -1, -1)[1]
  local number = last and tonumber(redis.call('ZSCORE', key, last)) or 0
  return digits(math.max(number + 1, now_us))
end

-- The names that got a number since, in order.
function Sequence.changed_since(key, since, limit)
  return redis.call('ZRANGE', key, '(' .. since, '+inf', 'BYSCORE', 'LIMIT', 0, limit)
end

-- The number of a name, as text.
function Sequence.number_of(key, name)
  return digits(tonumber(redis.call('ZSCORE', key, name)))
end
