-- Lives of the store. An identity is "run id of the server.id of the life"; "." before a first look.

-- Returns whether the caller's life is the present one, or the caller never looked. `present`: its id, if it was read.
function Life.is_life(identity, present)
  local id = identity:match('%.(.*)$')
  return id == '' or id == (present or redis.call('HGET', K.life, 'id'))
end

-- Fails with JQD_STORE_CHANGED unless the caller's life is the present one.
function Life.expect_life(identity)
  if not Life.is_life(identity) then
    fail('JQD_STORE_CHANGED', 'life')
  end
end
