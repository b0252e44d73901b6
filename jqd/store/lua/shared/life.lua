-- Which life of the store a caller knows. An identity is "run id of the server.id of the life"; "." before a first
-- look.
-- Whether that life is still the present one, or the caller never looked. `present`: its id, where it was read already.
function Life.is_life(identity, present)
  local id = identity:match('%.(.*)$')
  return id == '' or id == (present or redis.call('HGET', K.life, 'id'))
end

-- JQD_STORE_CHANGED unless it is.
function Life.expect_life(identity)
  if not Life.is_life(identity) then
    fail('JQD_STORE_CHANGED', 'life')
  end
end
