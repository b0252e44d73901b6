-- The read point of a journal's lane.
-- True when the store stands at `from`; false when at `to` already, which is what a lost answer leaves behind; else
-- JQD_POSITION with where it stands. JQD_STORE_CHANGED as long as the store has no life: it was emptied, and before
-- somebody looked it does not know that it has forgotten the claims that it would be told of here.
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
