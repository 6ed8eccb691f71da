import { describe, expect, it } from 'vitest';
import { messageOf, type MgwError } from '../../src/errors.ts';
import type { Model } from '../../src/exchange.ts';
import { composeVideo as composeResumable, type BodyParts } from '../../src/flows/compose-video.ts';
import type { Listing, ModelList } from '../../src/flows/models.ts';
import type { JsonObject } from '../../src/json.ts';
import { a } from '../../src/protocols/a/protocol.ts';
import { b } from '../../src/protocols/b/protocol.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import type { Protocol } from '../../src/protocols/protocol.ts';
import { storedName } from '../../src/store/store.ts';
import { images } from '../protocols/a/support.ts';
import { freshFolder } from '../support/servers.ts';
import { sessionIn } from './flow-deps.ts';

const flags = { model: 'vendor-h3-mini', prompt: 'a boat', duration: '5' };

/** Composes a video, and throws the error of the model list as an attempt to pay does. */
const composeVideo: typeof composeResumable = async (...args) => {
  const composed = await composeResumable(...args);
  if (composed.video.fault !== undefined) await composed.video.findVideos?.();
  return composed;
};

describe('configured defaults', () => {
  const compose = async (defaults: object, more: object = {}): ReturnType<typeof composeVideo> => {
    const session = sessionIn(freshFolder());
    const settings = { ...(await session.settings()), defaultsFor: () => ({ ...defaults }), ...more };
    const own = { ...session, settings: () => Promise.resolve(settings) };
    return composeVideo(own, c, { flags }, () => Promise.resolve(undefined));
  };

  it('are added to the sent body, but not to the requested body', async () => {
    const { video } = await compose({ resolution: '720p' });
    expect([video.body['resolution'], video.userBody['resolution']]).toEqual(['720p', undefined]);
    expect((await compose({})).video.body).toEqual(video.userBody);
  });

  it("are the requested model's defaults", async () => {
    const defaultsFor = (...of: unknown[]): object =>
      of.join() === 'c,vendor-h3-mini' ? { resolution: '720p' } : {};
    expect((await compose({}, { defaultsFor })).video.body).toMatchObject({ resolution: '720p' });
  });

  it('are refused if their flag or protocol is unknown', async () => {
    await expect(compose({ colour: 'red' })).rejects.toThrow('defaults.video.c: there is no flag --colour.');
    const stray = compose({}, { videoDefaults: { a: {}, d: {} } });
    await expect(stray).rejects.toMatchObject({ code: 'config', next: ['mgw', 'config', 'path'] });
  });
});

it('a local path is refused as an invalid URL if the caller does not read files', async () => {
  const composed = composeVideo(sessionIn(freshFolder()), c, { flags: { ...flags, image: './boat.png' } });
  await expect(composed).rejects.toMatchObject({
    code: 'usage',
    message: expect.stringContaining('--image') as string,
  });
});

describe('a local file', () => {
  const large = Buffer.alloc(20 * 2 ** 20 + 1);
  const small = large.subarray(1);
  const compose = (parts: BodyParts): ReturnType<typeof composeVideo> => {
    const session = sessionIn(freshFolder(), {}, { hasStore: () => Promise.resolve(true) });
    const readLocalFile = (path: string): Promise<Uint8Array> =>
      Promise.resolve(path === 'large.png' ? large : small);
    return composeVideo(session, c, { ...parts, readLocalFile }, () => Promise.resolve(undefined));
  };

  it('is replaced by its name in the store, and is uploaded', async () => {
    const { video } = await compose({ flags: { ...flags, image: 'small.png' } });
    expect([video.body['image'], video.upload]).toEqual([
      storedName('small.png', small),
      expect.any(Function),
    ]);
  });

  it('is checked against the maximum size for the model, which a flag or the body specifies', async () => {
    const [image, message] = ['large.png', `${flags.model} accepts at most 20 MiB`];
    await expect(compose({ flags: { ...flags, image } })).rejects.toThrow(message);
    await expect(compose({ flags: { image }, body: { model: flags.model } })).rejects.toThrow(message);
    await expect(compose({ flags: { image: 'small.png' } })).rejects.toThrow('--model: missing');
  });
});

it('a Protocol A model that is missing from the model list is not refused, but reported in a note', async () => {
  const listed = { id: 'veo-3', protocols: ['a'], model_versions: [] } as unknown as Model;
  const adviceFor = async (model: string): Promise<string[]> => {
    const parts = { flags: { model, prompt: 'a boat' } };
    return (await composeVideo(sessionIn(freshFolder()), a, parts, () => Promise.resolve([listed]))).video
      .advice;
  };
  expect(await adviceFor('veo-33')).toContain("--model: veo-33 is not in the gateway's model list.");
  expect(await adviceFor('veo-3')).toEqual([]);
});

it('a model that is missing from an incomplete model list is not refused, but reported in a note', async () => {
  const adviceFor = async (
    protocol: Protocol,
    own: Record<string, string>,
    isIncomplete: boolean,
  ): Promise<string[]> => {
    const models: ModelList = isIncomplete ? Object.assign([], { isIncomplete } as const) : [];
    const parts = { flags: { ...own, prompt: 'a boat' } };
    const composing = composeVideo(sessionIn(freshFolder()), protocol, parts, () => Promise.resolve(models));
    return (await composing).video.advice;
  };
  for (const [protocol, own] of [
    [b, { model: 'Video-X', 'model-version': '2.0' }],
    [c, { model: 'vendor-h4' }],
  ] as const) {
    const note = `--model: ${own.model} is not in the fetched part of the gateway's model list.`;
    expect(await adviceFor(protocol, own, true)).toContain(note);
    await expect(adviceFor(protocol, own, false)).rejects.toMatchObject({ code: 'usage' });
  }
});

describe('the model list', () => {
  const boat = { model: 'vendor-h3-mini', prompt: 'a boat' };
  /**
   * Composes a body with a protocol that takes the duration from the model list. Records the reason
   * for each fetch of the list.
   */
  const composed = async (
    needs: 'fill' | 'check' | undefined,
    parts: Partial<BodyParts>,
    complete: NonNullable<Protocol['complete']> = (body) => ({ ...body, duration: 6 }),
    listed: Model[] = [],
  ): Promise<{
    body: JsonObject | undefined;
    advice?: string[];
    error: string;
    fetched: string[];
    notes: string[];
  }> => {
    const protocol: Protocol = { ...c, needsListing: () => needs, complete };
    const [session, fetched] = [sessionIn(freshFolder()), [] as string[]];
    const listing: Listing = (use) => {
      fetched.push(use);
      return Promise.resolve(listed);
    };
    const request = { flags: boat, ...parts };
    const made = composeVideo(session, protocol, request, listing).then(({ video }) => ({
      body: video.body,
      advice: video.advice,
      error: '',
    }));
    const ended = await made.catch((error: unknown) => ({ body: undefined, error: messageOf(error) }));
    return { ...ended, fetched, notes: session.notes };
  };

  it('completes a body, and the body is checked afterwards', async () => {
    expect(await composed('fill', {})).toMatchObject({ body: { duration: 6 }, fetched: ['fill'] });
    const wrong = await composed('fill', {}, (body) => ({ ...body, duration: 98 }));
    expect(wrong).toMatchObject({ body: undefined, error: expect.stringContaining('98') as string });
    const unlisted = await composed('check', {}, (body) => ({ ...body, duration: 98 }));
    expect(unlisted.error).toContain('98');
    const unchecked = await composed('fill', { check: false }, (body) => ({ ...body, duration: 98 }));
    expect(unchecked).toMatchObject({ body: { duration: 98 }, error: '' });
  });

  it('is fetched from the gateway unless the caller provides it', async () => {
    const protocol: Protocol = { ...c, needsListing: () => 'fill' };
    const made = composeVideo(sessionIn(freshFolder()), protocol, { flags: boat });
    await expect(made).rejects.toThrow('taken from the model list, which could not be fetched');
  });

  it('is fetched for a body that lacks a field, but not for a body with other errors', async () => {
    const wrong = await composed('fill', { flags: { ...boat, duration: '98' } });
    expect([wrong.error, wrong.fetched]).toEqual([expect.stringContaining('98'), []]);
    const lacking = { flags: { prompt: 'a boat' } };
    const filled = await composed('fill', lacking, (body) => ({ ...body, model: 'vendor-h3-mini' }));
    expect(filled).toMatchObject({ body: { model: 'vendor-h3-mini' }, fetched: ['fill'] });
    expect(await composed('check', lacking)).toMatchObject({ body: undefined, fetched: [] });
  });

  it('is fetched in a dry run or with --no-check only if the body cannot be completed without the list', async () => {
    for (const parts of [{ dryRun: true }, { check: false }]) {
      expect((await composed('check', parts)).fetched).toEqual([]);
      expect((await composed('fill', parts)).fetched).toEqual(['fill']);
    }
    expect((await composed('check', {})).fetched).toEqual(['check']);
    const modelless = { check: false, flags: { prompt: 'a boat' } };
    expect(await composed(undefined, modelless)).toMatchObject({ body: { prompt: 'a boat' }, fetched: [] });
    // The list is fetched, because the model may belong to another protocol.
    expect((await composed(undefined, { flags: { ...boat, model: 'new' }, body: {} })).fetched).toEqual([
      'check',
    ]);
  });

  it('must contain the model for the requested protocol, except with --no-check', async () => {
    const members = { endpoints: [], model_versions: [], raw: {} };
    const listed: Model[] = [{ id: 'vendor-h3-mini', protocols: ['a'], ...members }];
    const { error } = await composed('check', {}, undefined, listed);
    expect(error).toBe('vendor-h3-mini is served by Protocol A, not by Protocol C.');
    expect(await composed('fill', { check: false }, undefined, listed)).toMatchObject({
      body: { model: 'vendor-h3-mini' },
      error: '',
    });
  });

  it('must provide the omitted fields, but with --no-check a failure to do so is only reported in a note', async () => {
    const refuse = (): never => {
      throw new Error('choose vendor-h3-mini 1 or 2');
    };
    expect((await composed('fill', {}, refuse)).error).toContain('choose vendor-h3-mini');
    const ofFile = (await composed('fill', { fromFiles: ['model'] }, refuse)).error;
    expect([ofFile.includes('--model'), ofFile.includes('vendor-h3-mini')]).toEqual([true, false]);
    const noted = await composed('fill', { check: false }, refuse);
    expect([noted.body?.['model'], noted.advice, noted.notes]).toEqual([
      'vendor-h3-mini',
      [],
      [expect.stringContaining('choose vendor-h3-mini')],
    ]);
  });
});

it('an error quotes an unlisted model from the command line, but not from a file', async () => {
  const messageFor = (parts: BodyParts): Promise<string> =>
    composeVideo(sessionIn(freshFolder()), b, parts, () => Promise.resolve([])).then(() => '', messageOf);
  const model = 'Video-X';
  const message = await messageFor({ flags: { model }, body: { Prompt: 'a boat' }, fromFiles: ['body'] });
  expect(message).toMatch(/^--model \(ModelName\): Video-X is not allowed/);
  const wrong = { OutputConfig: { Duration: 'long' }, ModelVersion: '2.0' };
  const judged = await messageFor({ flags: { model }, body: wrong, fromFiles: ['body'] });
  expect(judged).toContain(' for Video-X; ');
  const body = { ModelName: model, Prompt: 'a boat' };
  const ofFile = await messageFor({ flags: {}, body, fromFiles: ['body'] });
  expect(ofFile).toBe('--model: the value in the file is not in the model list exactly as written.');
});

describe("the note about a model's defaults", () => {
  it("lists the omitted flags and the model's setting", async () => {
    const noteOf = async (flags: Record<string, string>): Promise<string | undefined> =>
      (await composeVideo(sessionIn(freshFolder()), c, { flags }, () => Promise.resolve(undefined))).defaults;
    const model = 'vendor-h3-mini';
    expect(await noteOf({ model, prompt: 'a boat' })).toContain(`defaults.video.c.${model}.duration VALUE`);
    expect(await noteOf({ model, prompt: 'a boat', duration: '5', resolution: '720p' })).toBeUndefined();
  });
});

describe('the message about an invalid value', () => {
  const messageFor = async (parts: Partial<BodyParts>): Promise<string> => {
    const request = { flags: { model: 'vendor-h3-mini', prompt: 'a boat' }, ...parts };
    const composed = composeVideo(sessionIn(freshFolder()), c, request, () => Promise.resolve(undefined));
    return composed.then(
      () => '',
      (error: unknown) => messageOf(error),
    );
  };
  const body = { duration: 98, resolution: '4321p' };

  it('quotes a value from the command line, but never a value from a file', async () => {
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

  it("never quotes a flag's image, or a list or object that contains the image", async () => {
    const image = images['image/png'] ?? '';
    const parts = { flags: { model: 'video-a', prompt: 'a boat', image } };
    const { video } = await composeVideo(sessionIn(freshFolder()), a, parts, () => Promise.resolve([]));
    const isFromFile = ['.0.image', '.0.image.mimeType', '.0', '', '.0.prompt', '.1'].map((field) =>
      video.isFromFile?.(`instances${field}`),
    );
    expect(isFromFile).toEqual([true, true, true, true, false, false]);
  });

  it('is not printed with --no-check', async () => {
    expect(await messageFor({ body, check: false })).toBe('');
  });

  it('reports an absent field of a file as missing', async () => {
    const lacking = { flags: {}, body: { model: 'vendor-h3-mini' }, fromFiles: ['body'] };
    expect(await messageFor(lacking)).toMatch(/^--prompt: missing; /);
  });

  it('contains the model, unless the model is from a file', async () => {
    expect(await messageFor({ set: ['duration=97'] })).toContain('for vendor-h3-mini');
    expect(await messageFor({ set: ['duration=97'], fromFiles: ['model'] })).not.toContain('vendor-h3-mini');
  });

  it('suggests the model list only if the model is invalid', async () => {
    const nextOf = async (flags: Record<string, string>): Promise<unknown> =>
      composeVideo(sessionIn(freshFolder()), c, { flags }, () => Promise.resolve(undefined)).catch(
        (error: unknown) => (error as MgwError).next,
      );
    expect(await nextOf({ prompt: 'a boat' })).toEqual(['mgw', 'models', '--protocol', 'c']);
    expect(
      await nextOf({ ...{ model: 'vendor-h3-mini', prompt: 'a boat' }, duration: '97' }),
    ).toBeUndefined();
  });
});
