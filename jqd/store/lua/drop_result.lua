-- Forgets a kept result.
-- ARGV     now_ms, id, the row of the result that is meant, or nothing: whichever there is
-- Returns  1 when there was one
-- Errors   none
-- Cost     O(log results), and the bytes of the row
register('drop_result', {'allow-oom'}, function()
  local id, meant = ARGV[2], ARGV[3]

  local row = redis.call('HGET', K.result, id)
  if not row or meant ~= '' and row ~= meant then
    return 0
  end
  Results.drop({id})
  return 1
end)
