import type { ServerResponse } from 'node:http';
import { canaryKey } from './cli.ts';
import { fakeMp4, type Answer, type Seen } from './gateway-c.ts';
import { json, listen, play, startFileHost, type FileHost, type Origin } from './origin.ts';

/** A gateway that speaks Protocol B by the specification (2.3, 2.4, 3.2, 4.2, 5), and can be told otherwise. */
export interface GatewayB extends Origin {
  /** The host of the result files, which must never see a key. */
  files: FileHost;
  /** How many tasks were created. */
  created: number;
  /** The requests that create. */
  posts(): Seen[];
  /** Answers of the next submissions; then it goes on as usual. */
  submits: Answer[];
  /** Answers of the next queries. */
  queries: Answer[];
  /** Answers of the next requests for the listing. */
  listings: Answer[];
  /** Polls that show the task at work before it is finished. */
  polls: number;
  /** What a finished task shows in `AigcVideoTask` in place of what is usual. */
  task: object;
  /** What the finished answer shows next to it, in `Response`. */
  outer: object;
  /** `data` of the model listing; undefined where there is no such route. */
  models?: object[];
  video: Buffer;
}

/** What a call failed with, under HTTP 200 (specification 2.4, 7). */
function callError(Code: string, Message = `because of ${Code}`): object {
  return { Response: { Error: { Code, Message }, RequestId: 'req-of-the-error' } };
}

/** Starts the gateway and its file host on loopback, each on an origin of its own. */
export async function startGatewayB(filesAt?: string): Promise<GatewayB> {
  const tasks = new Map<string, number>();
  const video = fakeMp4(9000);
  const files = await startFileHost(video, filesAt);
  const handle = (seen: Seen, response: ServerResponse): void => {
    const listing = seen.path === '/v1/models' ? gateway.listings.shift() : undefined;
    if (listing !== undefined) {
      play(listing, seen, response);
      return;
    }
    if (seen.method === 'GET' && seen.path === '/v1/models' && gateway.models !== undefined) {
      json(response, { object: 'list', data: gateway.models });
      return;
    }
    if (seen.method !== 'POST' || seen.path !== '/') {
      json(response, { error: { message: `Invalid URL (${seen.method} ${seen.path})` } }, 404);
      return;
    }
    const creates = seen.headers['x-tc-action'] === 'CreateAigcVideoTask';
    const scripted = (creates ? gateway.submits : gateway.queries).shift();
    if (scripted !== undefined) {
      play(scripted, seen, response);
      return;
    }
    json(response, refusal(seen) ?? (creates ? create(seen) : describe(seen)));
  };
  const create = (seen: Seen): object => {
    const { ModelName, ModelVersion } = JSON.parse(seen.body) as Record<string, unknown>;
    if (typeof ModelName !== 'string' || typeof ModelVersion !== 'string')
      return callError('InvalidParameterValue', 'ModelName and ModelVersion are needed.');
    gateway.created += 1;
    const id = `12000000000000000${String(gateway.created).padStart(3, '0')}`;
    tasks.set(id, 0);
    return { Response: { TaskId: id, RequestId: 'req-create' } };
  };
  const describe = (seen: Seen): object => {
    const { TaskId, ...others } = JSON.parse(seen.body) as Record<string, unknown>;
    const polls = tasks.get(String(TaskId));
    if (polls === undefined || Object.keys(others).length > 0)
      return callError('ResourceNotFound', 'no such task');
    tasks.set(String(TaskId), polls + 1);
    const Status = ['WAITING', 'PROCESSING'][polls] ?? 'PROCESSING';
    const AigcVideoTask = polls >= gateway.polls ? finished(gateway, String(TaskId)) : { TaskId, Status };
    const shown = { TaskType: 'AigcVideoTask', Status, AigcVideoTask, RequestId: 'req-query' };
    return { Response: polls >= gateway.polls ? { ...shown, Status: 'FINISH', ...gateway.outer } : shown };
  };
  const origin = await listen(handle);
  const gateway: GatewayB = {
    ...origin,
    files,
    created: 0,
    posts: () => gateway.requests.filter(({ headers }) => headers['x-tc-action'] === 'CreateAigcVideoTask'),
    submits: [],
    queries: [],
    listings: [],
    polls: 1,
    task: {},
    outer: {},
    video,
    close: async () => {
      await Promise.all([origin.close(), files.close()]);
    },
  };
  return gateway;
}

function finished(gateway: GatewayB, TaskId: string): object {
  const FileInfos = [
    { FileUrl: `${gateway.files.url}/${TaskId}.mp4?sign=s3cret`, MetaData: { Duration: 5.04 } },
  ];
  return {
    TaskId,
    Status: 'FINISH',
    ErrCode: 0,
    ErrCodeExt: '',
    Message: '',
    Output: { FileInfos },
    ...gateway.task,
  };
}

// What the headers and the address of a call must be (specification 4.2, 5).
function refusal({ headers, body }: Seen): object | undefined {
  if (headers.authorization !== `Bearer ${canaryKey}`) return callError('AuthFailure', 'no valid key');
  if (headers['x-tc-version'] !== '2018-07-17') return callError('NoSuchVersion');
  if (headers['content-type'] !== 'application/json') return callError('InvalidRequest');
  if (!['CreateAigcVideoTask', 'DescribeTaskDetail'].includes(String(headers['x-tc-action'])))
    return callError('InvalidAction');
  return body.includes('SubAppId') ? callError('InvalidParameterValue', 'SubAppId') : undefined;
}
