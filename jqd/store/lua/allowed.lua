-- Returns which commands of our functions this user may not run. Reads and writes nothing.
-- ARGV     now_ms
-- Returns  the refused commands, each once
-- Errors   none of ours; a user who may not call functions on these keys at all gets the server's NOPERM
-- Cost     some 35 checks
register('allowed', {'no-writes'}, function()
  local refused = {}
  local function check(command, ...)
    if not redis.acl_check_cmd(command, ...) then
      refused[#refused + 1] = command
    end
  end

  for _, command in ipairs({'hget', 'hexists', 'hmget', 'hstrlen', 'hdel'}) do check(command, K.jobs, 'x') end
  for _, command in ipairs({'hgetall', 'hkeys', 'hvals', 'hlen', 'type', 'exists', 'unlink'}) do
    check(command, K.jobs)
  end
  for _, command in ipairs({'hset', 'hsetnx', 'hincrby'}) do check(command, K.jobs, 'x', '1') end
  for _, command in ipairs({'zscore', 'zmscore', 'zrem'}) do check(command, K.later, 'x') end
  check('hscan', K.jobs, '0')
  check('zscan', K.types, '0')
  check('zrange', ready_key('x'), '0', '1')
  check('zadd', held_key('x'), '1', 'x')
  check('zcard', K.later)
  check('zrandmember', K.types, '1')
  check('zcount', K.later, '0', '1')
  for _, command in ipairs({'rpush', 'lpos', 'lindex'}) do check(command, K.page, '0') end
  for _, command in ipairs({'lrange', 'ltrim', 'lrem'}) do check(command, K.page, '0', '1') end
  check('llen', K.page)
  check('get', K.fence)
  check('set', K.fence, '1')
  check('rename', K.due, K.again)
  check('time')
  check('function', 'load', 'x')
  check('function', 'list')
  check('function', 'delete', 'x')
  return refused
end)
