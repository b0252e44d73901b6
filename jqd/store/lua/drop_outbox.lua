-- Removes followers that are in a journal from the outbox or the shelf of a tenant. Notes them at their parents.
-- ARGV     now_ms, "=" and a tenant, or nothing, number of pairs, per pair: parent, child, then entries
-- Returns  how many entries were there
-- Errors   none
-- Cost     O(pairs · log children + entries · log entries), and the bytes
register('drop_outbox', {'allow-oom'}, function()
  local tenant = ARGV[2]:match('^=(.*)$')
  local FIRST, PAIR = 4, 2
  local behind = FIRST + tonumber(ARGV[3]) * PAIR

  local parents, children = {}, {}
  for at = FIRST, behind - 1, PAIR do
    parents[#parents + 1], children[#children + 1] = ARGV[at], ARGV[at + 1]
  end
  Links.note_made(parents, children)

  local key = tenant and shelf_key(tenant) or K.outbox
  local gone = #ARGV >= behind and redis.call('ZREM', key, unpack(ARGV, behind)) or 0
  if tenant then
    Outbox.tidy(tenant)
  end
  return gone
end)
