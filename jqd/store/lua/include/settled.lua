-- Whether this life of the store has all that the journals of its daemons know. Needs keys, fail, members.
-- Gives expect_settled(identity): JQD_UNSETTLED while a living member is not through the barrier of that life, or
-- the note is missing that all had the time to join it. So no daemon's opinion of the others can be late.
local function expect_settled(identity)
  if redis.call('HGET', K.life, 'settled') ~= identity or not all_through(identity) then
    fail('JQD_UNSETTLED', 'life')
  end
end
