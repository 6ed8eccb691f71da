import type { ServerContext } from '@modelcontextprotocol/server';
import { expect, onTestFinished, test } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import type { Session } from '../../src/flows/session.ts';
import { Calls, maxCallMs } from '../../src/mcp/calls.ts';
import type { Answer } from '../../src/mcp/result.ts';
import { TestClock } from '../support/test-clock.ts';

const never = new AbortController().signal;
const well: Answer = { ok: true, charged: 'no', retry: 'safe', next: null };
const late: Answer = { ...well, pending: true };

function callsOn(clock: TestClock, soft = never): Calls {
  const session = { clock, redact: (text: string) => text } as unknown as Session;
  return new Calls(session, { soft, hard: never });
}

function contextWith(
  signal = never,
  progressToken?: string,
  onProgress: (message: string) => void = () => undefined,
): { context: ServerContext } {
  const notify = ({ params }: { params: { message: string } }): Promise<void> => {
    onProgress(params.message);
    return Promise.resolve();
  };
  const mcpReq = { signal, notify, _meta: { progressToken } };
  return { context: { mcpReq } as unknown as ServerContext };
}

test('an MCP call that takes too long receives a response, and its work continues until the server ends', async () => {
  const clock = new TestClock();
  const calls = callsOn(clock);
  let finish: (answer: Answer) => void = () => undefined;
  const work = new Promise<Answer>((resolve) => (finish = resolve));
  const answered = calls.run(contextWith().context, late, () => work);
  expect(maxCallMs).toBeLessThanOrEqual(55_000);
  clock.advance(maxCallMs);
  expect((await answered).structuredContent).toMatchObject({ pending: true });
  let hasEnded = false;
  const end = calls.end().then(() => {
    hasEnded = true;
  });
  await Promise.resolve();
  expect(hasEnded).toBe(false);
  finish(well);
  await end;
  expect(hasEnded).toBe(true);
});

test('an MCP call that is made after the server has ended is aborted', async () => {
  const calls = callsOn(new TestClock());
  await calls.end();
  const aborted: boolean[] = [];
  await calls.run(contextWith().context, late, ({ signals }) => {
    aborted.push(signals.soft.aborted);
    return Promise.resolve(well);
  });
  expect(aborted).toEqual([true]);
});

test('an MCP client that requests progress receives the progress of its call', async () => {
  const first = new Promise<string>((resolve) => {
    const { context } = contextWith(never, 'token', resolve);
    let finish: (answer: Answer) => void = () => undefined;
    void callsOn(new TestClock()).run(context, late, (call) => {
      call.reportProgress('job_1 running');
      return new Promise<Answer>((done) => (finish = done));
    });
    onTestFinished(() => finish(well));
  });
  expect(await first).toBe('job_1 running');
});

test.each<[string, boolean, (calls: Calls) => unknown]>([
  ['neither cancels nor disconnects', true, () => undefined],
  ['cancels another call', true, (calls) => calls.cancelled('other')],
  ['cancels a call that has been answered', false, (calls) => calls.cancelled('call')],
  ['disconnects before it can have read the response', false, (calls) => calls.end()],
])('an MCP client that %s is considered to have received the outcome: %s', async (_, isTold, happen) => {
  const clock = new TestClock(1000);
  const calls = callsOn(clock);
  const { mcpReq } = contextWith().context;
  const context = { mcpReq: { ...mcpReq, id: 'call' } } as ServerContext;
  const recorded = new Promise<boolean>((resolve) => {
    void calls
      .run(context, late, (call) => {
        call.onAnswered((each) => {
          resolve(each);
          return Promise.resolve();
        });
        return Promise.resolve(well);
      })
      .then(() => happen(calls))
      .then(() => clock.advance(1000));
  });
  expect(await recorded).toBe(isTold);
});

test('an MCP error reports a possible charge only if the call was about to pay', async () => {
  const calls = callsOn(new TestClock());
  const fail = (): never => {
    throw new MgwError('submit_unknown', 'who knows', { charged: 'maybe' });
  };
  const resumed = await calls.run(contextWith().context, late, () => fail());
  const paid = await calls.run(contextWith().context, late, (call) => {
    call.markPaying();
    return fail();
  });
  expect(resumed.structuredContent).toMatchObject({ charged: 'no' });
  expect(paid.structuredContent).toMatchObject({ charged: 'maybe' });
});
