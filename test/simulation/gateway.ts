import { box } from '../support/film.ts';
import { endFrame, audioFrames } from '../faults/frames.ts';

/** A task that the gateway created and charged. */
export interface Created {
  handle: string;
  prompt: string;
  /** The address of the gateway that created the task. */
  origin: string;
  /** The result's bytes. */
  bytes: Buffer;
}

/** A response, whose body is sent in pieces. */
export interface Response {
  status: number;
  headers: Record<string, string>;
  pieces: Buffer[];
}

/** The prompt whose task fails, and the gateway's message. */
export const failing = { prompt: 'a storm', message: 'the boat sank' };

/** The gateway of a simulation, which completes each task after one poll and counts tasks. */
export class Gateway {
  readonly created: Created[] = [];

  constructor(readonly origin: string) {}

  readonly #polls = new Map<string, number>();

  answer(method: string, path: string, body: string): Response {
    const { prompt = '', text = '' } = (body === '' ? {} : flat(JSON.parse(body))) as Record<string, string>;
    if (method === 'POST') return path.includes('/tts/') ? this.#speak(text) : this.#make(prompt);
    const [, handle = '', content] =
      /^\/v1\/(?:videos|video\/generations)\/([^/]+)(\/content)?$/.exec(path) ?? [];
    const task = this.created.find((created) => created.handle === handle);
    if (task === undefined)
      return json(404, { error: { code: 'task_not_exist', message: 'task not exist' } });
    const hasFailed = task.prompt === failing.prompt;
    if (content !== undefined && !hasFailed)
      return inPieces('video/mp4', task.bytes, { etag: `"${handle}"` });
    const polls = (this.#polls.get(handle) ?? 0) + 1;
    this.#polls.set(handle, polls);
    if (polls === 1) return json(200, { task_id: handle, status: 'in_progress' });
    const { message } = failing;
    return json(200, {
      task_id: handle,
      ...(hasFailed ? { status: 'failed', error: { message } } : { status: 'completed' }),
    });
  }

  #make(prompt: string): Response {
    const task_id = this.#create(prompt, (handle) =>
      Buffer.concat([
        box('ftyp', Buffer.from('isom\x00\x00\x02\x00')),
        box('moov', Buffer.alloc(8)),
        box('mdat', Buffer.from(handle.repeat(20))),
      ]),
    ).handle;
    return json(200, { id: task_id, task_id, object: 'video', status: 'queued', progress: 0 });
  }

  #speak(text: string): Response {
    const { handle, bytes } = this.#create(text, (name) => Buffer.from(`ID3 ${name} ${'x'.repeat(100)}`));
    const body = Buffer.from([...audioFrames(bytes, 50), endFrame].join('\n'));
    return inPieces('application/json', body, { 'x-tt-logid': handle });
  }

  #create(prompt: string, bytes: (handle: string) => Buffer): Created {
    const port = new URL(this.origin).port.slice(1);
    const handle = `task_${port}${String(this.created.length + 1).padStart(4, '0')}`;
    const created = { handle, prompt, origin: this.origin, bytes: bytes(handle) };
    this.created.push(created);
    return created;
  }
}

// Moves the members of `req_params`, which contains the text to speak, to the top level.
function flat(body: unknown): unknown {
  const { req_params: inner, ...outer } = body as { req_params?: object };
  return { ...outer, ...inner };
}

/** Returns a response with a JSON body. */
export function json(status: number, body: object): Response {
  return inPieces('application/json', Buffer.from(JSON.stringify(body)), {}, 1, status);
}

function inPieces(
  type: string,
  body: Buffer,
  more: Record<string, string>,
  count = 3,
  status = 200,
): Response {
  const size = Math.ceil(body.length / count);
  const pieces = Array.from({ length: count }, (_, index) => body.subarray(index * size, (index + 1) * size));
  return {
    status,
    headers: { 'content-type': type, 'content-length': String(body.length), ...more },
    pieces,
  };
}
