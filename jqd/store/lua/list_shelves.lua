-- Returns tenants whose followers wait for their quotas.
-- ARGV     now_ms, limit
-- Returns  flat: tenant, number of entries, when the oldest came; tenants whose shelves are due first come first
-- Errors   none
-- Cost     O(limit)
register('list_shelves', {'no-writes'}, function()
  local limit = tonumber(ARGV[2])

  local answer = {}
  for _, tenant in ipairs(redis.call('ZRANGE', K.shelves, 0, limit - 1)) do
    local oldest = redis.call('ZRANGE', shelf_key(tenant), 0, 0, 'WITHSCORES')[2]
    if oldest then
      answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = tenant,
        redis.call('ZCARD', shelf_key(tenant)), oldest
    end
  end
  return answer
end)
