-- Holds of jobs that have not come yet: `early` says in whose hand such a job lies, `held:` under which fence.
-- Gives has_early; early_holder(id) → sysid or nil; drop_early(id), after which the caller empties the
-- hand, so that nobody asks any more of which content that hold was (change). While there is no such hold, the server is asked once per function and no more.
function starts.has_early() return redis.call('EXISTS', K.early) == 1 end

function Early.early_holder(id)
  return call.has_early and redis.call('HGET', K.early, id) or nil
end

function Early.drop_early(id)
  if call.has_early then
    redis.call('HDEL', K.early, id)
    redis.call('HDEL', K.generation, 'h' .. id)
  end
end
