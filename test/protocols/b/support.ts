import type { Reply } from '../../../src/exchange.ts';
import type { JsonObject } from '../../../src/json.ts';

/** Returns a response with the given body: text unchanged, other values as JSON. */
export function reply(body: unknown, status = 200, complete = true): Reply {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return { status, headers: {}, text, complete };
}

/** Returns the response to a failed call, by default with HTTP 200 (specification 2.4). */
export function callFailure(code: string, message = 'words', status = 200): Reply {
  return reply({ Response: { Error: { Code: code, Message: message }, RequestId: 'r-1' } }, status);
}

/** A body that passes every check. */
export const goodBody: JsonObject = {
  ModelName: 'Video-B',
  ModelVersion: '1.0',
  Prompt: 'a cat',
  OutputConfig: { Resolution: '720P', Duration: 5, AspectRatio: '16:9', AudioGeneration: 'Enabled' },
};

/** Returns a task that succeeded with one file. `task` and `response` replace or add members. */
export function finished(task: object = {}, response: object = {}): JsonObject {
  return {
    Response: {
      TaskType: 'AigcVideoTask',
      Status: 'FINISH',
      AigcVideoTask: {
        TaskId: 't-1',
        Status: 'FINISH',
        ErrCode: 0,
        ErrCodeExt: '',
        Message: '',
        Output: { FileInfos: [{ FileUrl: 'https://files.example/v.mp4', MetaData: { Duration: 5 } }] },
        ...task,
      },
      RequestId: 'r-2',
      ...response,
    },
  };
}
