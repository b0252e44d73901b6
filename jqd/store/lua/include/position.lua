-- The read point of a journal's lane. Needs keys, fail.
-- Gives at_position(field, from, to): true when the store stands at `from`; false when at `to` already, which is what a
-- lost answer leaves behind; else JQD_POSITION with where it stands.
local function at_position(field, from, to)
  local stored = redis.call('HGET', K.applied, field) or '0'
  if not stored:match('^%d+$') then
    fail('JQD_BAD_VALUE', 'applied')
  end
  if stored == from then
    return true
  elseif stored == to then
    return false
  end
  fail('JQD_POSITION', stored)
end
