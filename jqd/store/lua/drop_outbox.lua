-- Takes followers out of the outbox, or off the shelf of a tenant, that are in a journal, and tells their parents of them.
-- ARGV     now_ms, "=" and a tenant, or nothing, number of pairs, per pair: parent, child, then entries
-- Returns  how many entries were there
-- Errors   JQD_ARGUMENT; none after the first write
-- Cost     O(pairs · log children + entries · log entries), and the bytes
register('drop_outbox', {'allow-oom'}, function()
  local NOT_TOLD = 9007199254740991  -- the last stage there is (links.lua): they wait for nothing, so the parent owes them nothing
  local tenant = ARGV[2]:match('^=(.*)$')
  local FIRST, PAIR = 4, 2
  local behind = FIRST + number(ARGV[3], 'pairs') * PAIR

  local parents, keys, linked = {}, {}, {}
  for at = FIRST, behind - 1, PAIR do
    local place = #parents + 1
    parents[place], keys[place] = ARGV[at], K.children .. ARGV[at]
  end
  -- Nearly all have just ended, which one call tells of all; to read their rows would bring their arguments, too.
  local ended = #parents > 0 and redis.call('ZMSCORE', K.ended, unpack(parents)) or {}
  for place, parent in ipairs(parents) do
    if ended[place] or redis.call('HEXISTS', K.jobs, parent) == 1 then
      redis.call('ZADD', keys[place], 'LT', digits(NOT_TOLD), ARGV[FIRST + PAIR * place - 1])
      linked[#linked + 1], linked[#linked + 2] = Links.MADE, parent
    end
  end
  if #linked > 0 then
    redis.call('ZADD', K.linked, 'LT', unpack(linked))
  end

  local key = tenant and shelf_key(tenant) or K.outbox
  local gone = #ARGV >= behind and redis.call('ZREM', key, unpack(ARGV, behind)) or 0
  if tenant and redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', K.shelves, tenant)
  end
  return gone
end)
