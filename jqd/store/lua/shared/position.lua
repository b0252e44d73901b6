-- The position up to which a lane of a journal was applied.

-- Returns true if the store is at `from`, false if it is at `to`: an answer was lost. Otherwise fails with
-- JQD_POSITION. Fails with JQD_STORE_CHANGED if the store has no life: it was emptied, and does not know yet which
-- claims it forgot.
function Position.at_position(field, from, to)
  local stored = redis.call('HGET', K.applied, field) or '0'
  if not stored:match('^%d+$') then
    fail('JQD_BAD_VALUE', 'applied')
  end
  if stored == from then
    if redis.call('HEXISTS', K.life, 'id') == 0 then
      fail('JQD_STORE_CHANGED', 'life')
    end
    return true
  elseif stored == to then
    return false
  end
  fail('JQD_POSITION', stored)
end
