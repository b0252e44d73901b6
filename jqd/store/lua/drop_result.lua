-- Drops a kept result.
-- ARGV     now_ms, id, row of the result, or nothing: any
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
