import { describe, expect, it } from 'vitest';
import { resolveSettings } from '../../src/config/resolve.ts';
import type { SettingFlags } from '../../src/config/rules.ts';
import { checkGateway, findJobHere, protocolOf } from '../../src/flows/find-job.ts';
import { accountOf } from '../../src/flows/settings.ts';
import { lostProtocol, type Job, type JobEvent } from '../../src/job.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import { newJobId } from '../../src/ledger/names.ts';
import { protocols } from '../../src/protocols/registry.ts';
import { deadOwner } from '../jobs/harness.ts';
import { freshFolder } from '../support/servers.ts';
import { flowDeps, jobWith } from './flow-deps.ts';

const accepted: JobEvent = { type: 'accepted', handle: 'task_1' };
const prepared = { type: 'prepared', protocol: 'a', base_url: '', fingerprint: '', account: '' } as const;

describe('a job with a REF', () => {
  it("is returned with its protocol and that protocol's settings, unless it is speech", async () => {
    const own = { ...c, name: 'c' as const };
    const deps = await flowDeps(freshFolder(), { withSettings: () => own });
    const video = await jobWith(deps.ledger, 'c', accepted);
    const found = await findJobHere(video.id, deps, ['jobs', 'wait']);
    expect([found.job.id, found.protocol]).toEqual([video.id, own]);
    const speech = await jobWith(deps.ledger, 'tts');
    expect(await findJobHere(speech.id, deps, ['jobs', 'wait'])).toMatchObject({ job: { id: speech.id } });
    expect((await findJobHere(speech.id, deps, ['jobs', 'wait'])).protocol).toBeUndefined();
  });

  it('is refused, with the command for its own protocol, if the command is for another protocol, but is accepted if its protocol is lost', async () => {
    const deps = await flowDeps(freshFolder());
    const { id } = await jobWith(deps.ledger, 'c', accepted);
    await expect(findJobHere(id, deps, ['video', 'a', 'fetch'], protocols.a)).rejects.toMatchObject({
      code: 'usage',
      next: ['mgw', 'video', 'c', 'fetch', id],
      protocols: ['c'],
    });
    const speech = await jobWith(deps.ledger, 'tts');
    for (const [verb, command] of [
      ['fetch', 'fetch'],
      ['status', 'show'],
    ] as const)
      await expect(findJobHere(speech.id, deps, ['video', 'a', verb], protocols.a)).rejects.toMatchObject({
        next: ['mgw', 'jobs', command, speech.id],
      });
    const lost = await jobWith(deps.ledger, lostProtocol, accepted);
    expect((await findJobHere(lost.id, deps, ['video', 'a', 'fetch'], protocols.a)).protocol).toBe(
      protocols.a,
    );
    expect(() => protocolOf(lost)).toThrow(expect.objectContaining({ job: lost }));
    expect(protocolOf({ ...lost, protocol: 'c' })).toBe(c);
  });

  it('is refused if it belongs to another gateway, and the error suggests the command for that gateway', async () => {
    const deps = await flowDeps(freshFolder());
    const id = newJobId(1_795_000_000_000);
    await deps.ledger.create(id, [{ ...prepared, base_url: 'https://other.example' }]);
    await expect(findJobHere(id, deps, ['jobs', 'wait'])).rejects.toMatchObject({
      code: 'usage',
      next: ['mgw', '--base-url', 'https://other.example', 'jobs', 'wait', id],
    });
  });

  it('is refused if it is not recorded, and the error lists the possible protocols if the REF may be a handle', async () => {
    const deps = await flowDeps(freshFolder());
    const find = (...words: string[]): Promise<unknown> =>
      findJobHere('task_9', deps, words).catch((error: unknown) => error);
    expect(await find('video', 'fetch')).toMatchObject({ code: 'usage', protocols: ['a', 'b', 'c'] });
    expect(await find('jobs', 'fetch')).toMatchObject({ code: 'usage', protocols: undefined });
  });

  it('gets its handle from a response that was recorded but not evaluated', async () => {
    const deps = await flowDeps(freshFolder());
    const owner = deadOwner();
    const reply = {
      status: 200,
      headers: {},
      text: '{"task_id":"task_7","status":"queued"}',
      complete: true,
    };
    const sending: JobEvent = { type: 'sending', attempt: 1, owner };
    const { id } = await jobWith(deps.ledger, 'c', sending, { type: 'reply', attempt: 1, reply });
    expect((await findJobHere(id, deps, ['jobs', 'wait'])).job.handle).toBe('task_7');
  });

  it('gets a warning if its recorded response contains an operation of a different model', async () => {
    const deps = await flowDeps(freshFolder());
    const id = newJobId(1_795_000_000_000);
    const text = '{"name":"models/other/operations/1"}';
    await deps.ledger.create(id, [
      { ...prepared, request: { model: 'vendor-v' } },
      { type: 'sending', attempt: 1, owner: deadOwner() },
      { type: 'reply', attempt: 1, reply: { status: 200, headers: {}, text, complete: true } },
    ]);
    await findJobHere(id, deps, ['jobs', 'wait']);
    expect((await deps.ledger.events(id)).at(-1)).toMatchObject({
      type: 'accepted',
      warning: expect.stringContaining('cannot be fetched') as string,
    });
  });
});

describe('a job of another gateway', () => {
  const at = (base_url: string, account = ''): Job => ({ id: 'j', base_url, record: { account } }) as Job;
  const choice = (flags: SettingFlags = {}) =>
    resolveSettings({
      flags,
      env: {},
      file: {
        profiles: {
          default: { base_url: 'https://g.example', api_key: 'sk-of-default' },
          work: { base_url: 'https://Work.example/', api_key: 'sk-of-work' },
        },
      },
    });

  it.each([
    ['', 'https://g.example'],
    ['https://g.example', 'https://g.example'],
    ['http://localhost:7', 'http://127.0.0.1:7'],
    ['sandbox', 'sandbox'],
  ])('is not a job that was recorded for "%s" if the configured gateway is %s', (own, gateway) => {
    expect(() => checkGateway(at(own), gateway, choice(), ['jobs'])).not.toThrow();
  });

  it.each([
    ['https://other.example', ['--base-url', 'https://other.example']],
    ['http://other.example', ['--base-url', 'http://other.example', '--allow-http']],
    ['http://127.0.0.1:8', ['--base-url', 'http://127.0.0.1:8']],
    ['sandbox', ['--sandbox']],
  ])('is refused if its gateway is %s, and the suggested command contains %j', (own, flags) => {
    const settings = choice({ apiKey: 'sk-of-the-caller' });
    expect(() => checkGateway(at(own), 'https://g.example', settings, ['jobs', 'wait', 'j'])).toThrow(
      expect.objectContaining({ code: 'usage', next: ['mgw', ...flags, 'jobs', 'wait', 'j'], job: at(own) }),
    );
  });

  it.each([
    ['default', 'https://g.example', 'work', 'https://work.example'],
    ['work', 'https://work.example', 'default', 'https://g.example'],
  ])(
    'is refused under the profile %s (%s), and the suggested command selects the profile %s (%s)',
    (profile, here, other, own) => {
      expect(() => checkGateway(at(own), here, choice({ profile }), ['jobs', 'wait', 'j'])).toThrow(
        expect.objectContaining({
          next: ['mgw', '--profile', other, '--base-url', own, 'jobs', 'wait', 'j'],
        }),
      );
    },
  );

  it('is refused if a flag has replaced the base URL of the profile, and the suggested command restores it', () => {
    const settings = choice({ baseUrl: 'https://other.example' });
    expect(() => checkGateway(at('https://g.example'), 'https://other.example', settings, ['jobs'])).toThrow(
      expect.objectContaining({ next: ['mgw', '--base-url', 'https://g.example', 'jobs'] }),
    );
  });

  it("never receives the key of another gateway's profile, unless that key paid for the job", () => {
    const own = 'https://third.example:8443';
    expect(() => checkGateway(at(own), 'https://g.example', choice(), ['jobs', 'wait', 'j'])).toThrow(
      expect.objectContaining({
        message: expect.stringContaining('with --profile third.example-8443') as string,
        next: ['mgw', 'auth', 'login', '--profile', 'third.example-8443', '--base-url', own],
      }),
    );
    const paid = at(own, accountOf('sk-of-default'));
    expect(() => checkGateway(paid, 'https://g.example', choice(), ['jobs', 'wait', 'j'])).toThrow(
      expect.objectContaining({ next: ['mgw', '--base-url', own, 'jobs', 'wait', 'j'] }),
    );
  });
});
