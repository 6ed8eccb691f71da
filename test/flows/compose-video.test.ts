import { describe, expect, it } from 'vitest';
import { messageOf } from '../../src/errors.ts';
import { composeVideo, type BodyParts } from '../../src/flows/compose-video.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import { freshFolder } from '../support/servers.ts';
import { sessionIn } from './flow-deps.ts';

const flags = { model: 'vendor-h3-mini', prompt: 'a boat', duration: '5' };

describe('the configured defaults of a video', () => {
  const compose = async (defaults: object, more: object = {}): ReturnType<typeof composeVideo> => {
    const session = sessionIn(freshFolder());
    const settings = { ...(await session.settings()), defaultsFor: () => ({ ...defaults }), ...more };
    const own = { ...session, settings: () => Promise.resolve(settings) };
    return composeVideo(own, c, { flags }, () => Promise.resolve(undefined));
  };

  it('are added to the body that is sent, but not to the requested body', async () => {
    const { video } = await compose({ resolution: '720p' });
    expect([video.body['resolution'], video.asked['resolution']]).toEqual(['720p', undefined]);
    expect((await compose({})).video.body).toEqual(video.asked);
  });

  it('are refused for an unknown flag or protocol', async () => {
    await expect(compose({ colour: 'red' })).rejects.toThrow('defaults.video.c: there is no flag --colour.');
    const stray = compose({}, { videoDefaults: { a: {}, d: {} } });
    await expect(stray).rejects.toMatchObject({ code: 'config', next: ['mgw', 'config', 'path'] });
  });
});

describe('the message about a wrong value', () => {
  const messageFor = async (parts: Partial<BodyParts>): Promise<string> => {
    const given = { flags: { model: 'vendor-h3-mini', prompt: 'a boat' }, ...parts };
    const composed = composeVideo(sessionIn(freshFolder()), c, given, () => Promise.resolve(undefined));
    return composed.then(
      () => '',
      (error: unknown) => messageOf(error),
    );
  };
  const body = { duration: 98, resolution: '4321p' };

  it('quotes a value from the command line, and never one from a file', async () => {
    const flags = { model: 'vendor-h3-mini', prompt: 'a boat', duration: '97' };
    expect(await messageFor({ body })).toMatch(/98.*4321p/s);
    const ofFile = await messageFor({ body, fromFiles: ['body'] });
    expect(ofFile).toMatch(/duration.*resolution/s);
    expect(ofFile).not.toMatch(/98|4321p/);
    for (const own of [{ flags }, { set: ['duration=97'] }]) {
      const mixed = await messageFor({ body, fromFiles: ['body'], ...own });
      expect(mixed).toContain('97');
      expect(mixed).not.toMatch(/98|4321p/);
    }
    expect(await messageFor({ flags, fromFiles: ['duration'] })).not.toContain('97');
    expect(await messageFor({ flags, fromFiles: ['prompt'] })).toContain('97');
  });
});
