import { describe, expect, it } from 'vitest';
import { usageError } from '../../src/errors.ts';
import type { EarlierAsset } from '../../src/flows/earlier-job.ts';
import type { Session } from '../../src/flows/session.ts';
import { namedFiles, uploadFor, type LocalFiles } from '../../src/flows/uploads.ts';
import type { JsonObject } from '../../src/json.ts';
import { a } from '../../src/protocols/a/protocol.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import { storedName, type Store } from '../../src/store/store.ts';
import { freshFolder, httpServer } from '../support/servers.ts';
import { sessionIn } from './flow-deps.ts';

const png = (text: string): Uint8Array => Buffer.from(`\x89PNG\r\n\x1a\n${text}`, 'latin1');
const content = (text: string): Uint8Array => new TextEncoder().encode(text);
const read = (path: string): Promise<Uint8Array> =>
  Promise.resolve(path === 'empty.png' ? new Uint8Array() : png(path));
const hasStore = (isSo: boolean): Session =>
  sessionIn(freshFolder(), {}, { hasStore: () => Promise.resolve(isSo) });

describe('the files in flags', () => {
  it('are replaced by content-based names, even in lists, but URLs and other flags are unchanged', async () => {
    const flags = {
      image: 'boat.png',
      'reference-image': ['https://a.test/1.png', 'two.png'],
      prompt: 'boat.png',
    };
    const named = await namedFiles(hasStore(true), c, flags, read);
    const [boat, two] = ['boat.png', 'two.png'].map((path) => storedName(path, png(path)));
    expect(named.flags).toEqual({
      image: boat,
      'reference-image': ['https://a.test/1.png', two],
      prompt: 'boat.png',
    });
    expect([...named.files.keys()]).toEqual([boat, two]);
    expect(await named.files.get(boat ?? '')?.()).toEqual(png('boat.png'));
    expect(flags.image).toBe('boat.png');
  });

  it.each([
    ['an empty file', 'empty.png', true, 'empty.png is empty'],
    ['no store', 'boat.png', false, 'configure a store'],
    ['an earlier job and no store', '@intro:last', false, 'configure a store'],
  ])('are refused if there is %s', async (_, image, isThere, words) => {
    await expect(namedFiles(hasStore(isThere), c, { image }, read)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining(words) as string,
    });
  });

  it.each([
    ['image', 'text', 'text.png is text/plain; an image is required'],
    ['image', 'ID3\x04', 'is audio/mpeg; an image is required'],
    ['image', '\0\0\0\x20ftypisom', 'is video/mp4; an image is required'],
    ['reference-audio', '\x89PNG\r\n\x1a\n', 'is image/png; audio is required'],
    ['reference-audio', 'words', 'is text/plain; audio is required'],
    ['reference-video', 'RIFF\0\0\0\0WAVE', 'is audio/wav; video is required'],
    ['image', '<svg xmlns="http://www.w3.org/2000/svg"/>', undefined],
    ['image', '\0unknown', undefined],
    ['reference-audio', '\0\0\0\x20ftypisom', undefined],
    ['reference-audio', '\0unknown', undefined],
    ['reference-video', 'GIF89a', undefined],
  ])(
    'are refused only if their type is certainly wrong: --%s with a file that begins with %j',
    async (flag, begins, words) => {
      const bytes = Buffer.from(begins, 'latin1');
      const named = namedFiles(hasStore(true), c, { [flag]: 'text.png' }, () => Promise.resolve(bytes));
      if (words === undefined) expect((await named).files.size).toBe(1);
      else
        await expect(named).rejects.toMatchObject({
          code: 'usage',
          message: expect.stringContaining(`--${flag}: `) as string,
        });
      if (words !== undefined) await expect(named).rejects.toThrow(words);
    },
  );

  it.each([
    ['image', 'vendor-h3-mini', 20],
    ['reference-audio', 'vendor-h3-base', 50],
  ])(
    'are refused if they are too large, but not for the official model: --%s for %s above %d MiB',
    async (flag, model, max) => {
      const bytes = Buffer.alloc(max * 2 ** 20 + 1);
      const named = (name: string, length: number): Promise<unknown> =>
        namedFiles(
          hasStore(true),
          c,
          { [flag]: 'large.bin' },
          () => Promise.resolve(bytes.subarray(0, length)),
          undefined,
          name,
        );
      await expect(named(model, bytes.length)).rejects.toThrow(`${model} accepts at most ${max} MiB`);
      await named(model, bytes.length - 1);
      await named('vendor-h3', bytes.length);
    },
  );

  it('are refused if they change before they are sent', async () => {
    let text = 'one';
    const changing = (): Promise<Uint8Array> => Promise.resolve(png(text));
    const { files } = await namedFiles(hasStore(true), c, { image: 'boat.png' }, changing);
    text = 'two';
    await expect([...files.values()][0]?.()).rejects.toMatchObject({ code: 'usage' });
  });

  it('may be earlier jobs that the caller resolves, and need no store for Protocol A', async () => {
    const read = (): Promise<Uint8Array> => Promise.resolve(content('png'));
    const asset: EarlierAsset = { name: 'sha256:x.mp4#last', find: read, read };
    const knownAssets = new Map([['@intro:last', asset]]);
    const named = await namedFiles(hasStore(false), a, { image: '@intro:last' }, read, knownAssets);
    expect(named.flags).toEqual({ image: asset.name });
    expect(named.files.get(asset.name)).toBe(asset.read);
    expect(named.labels.get(asset.name)).toBe('--image @intro:last');
    expect((await namedFiles(hasStore(true), c, { image: '@intro:last' }, read, knownAssets)).flags).toEqual({
      image: asset.name,
    });
  });
});

describe('the upload of a submission', () => {
  const png = storedName('boat.png', content('boat'));
  const frame = `${storedName('boat.mp4', content('film'))}#last`;
  const files: LocalFiles = new Map([
    [png, () => Promise.resolve(content('boat'))],
    [frame, () => Promise.resolve(content('a frame'))],
  ]);

  /** Uploads a body's files. Returns the body to send, and the uploaded names with their content. */
  const uploaded = async (
    body: JsonObject,
    known: LocalFiles = files,
    host = 'store.example',
  ): Promise<{ sent: JsonObject; names: string[]; notes: string[] }> => {
    const names: string[] = [];
    const store: Partial<Store> = {
      url: async (name, readFile) => {
        if (readFile === undefined) throw usageError('the store does not have it');
        names.push(`${name.slice(-4)} ${new TextDecoder().decode(await readFile())}`);
        return `https://${host}/${names.length}`;
      },
    };
    const session = sessionIn(
      freshFolder(),
      { MGW_BASE_URL: 'https://gateway.example' },
      {
        store: () => Promise.resolve(store as Store),
      },
    );
    const exchange = await uploadFor(session, c, body, known)?.();
    return { sent: JSON.parse(String(exchange?.body)) as JsonObject, names, notes: session.notes };
  };

  it('replaces names with URLs, and names an uploaded frame after the hash of its own bytes', async () => {
    const body = { model: 'vendor-h3', prompt: png, image: png, last_frame_image_url: frame };
    const { sent, names, notes } = await uploaded(body);
    expect(names).toEqual(['.png boat', '.png a frame']);
    expect(sent).toMatchObject({
      ...{ image: 'https://store.example/1', last_frame_image_url: 'https://store.example/2', prompt: png },
    });
    expect(notes).toEqual([]);
    expect((await uploaded(body, files, '10.0.0.7')).notes).toMatchObject(
      [/Uploaded, but .*10\.0\.0\.7/].map((each) => expect.stringMatching(each) as string),
    );
  });

  it("names another copy of an earlier job's video after the hash of its own bytes", async () => {
    const [first, copy] = ['film', 'marked'].map((text) => storedName('a.mp4', content(text)));
    const names: string[] = [];
    const store = { url: (name: string) => Promise.resolve(`https://a.test/${names.push(name)}`) };
    const session = sessionIn(freshFolder(), {}, { store: () => Promise.resolve(store as unknown as Store) });
    const localFiles: LocalFiles = new Map([[first ?? '', () => Promise.resolve(content('marked'))]]);
    await uploadFor(session, c, { model: 'vendor-h3', reference_video_urls: [first ?? ''] }, localFiles)?.();
    expect(names).toEqual([copy]);
  });

  it("is refused if a job's frame is not available locally, or if a file is neither local nor in the store", async () => {
    const none: LocalFiles = new Map();
    await expect(uploaded({ image: frame }, none)).rejects.toThrow('is a frame of an earlier job');
    await expect(uploaded({ image: png }, none)).rejects.toThrow('the store does not have it');
  });

  it('is skipped if the body contains no uploaded file, unless assets are checked', () => {
    const session = sessionIn(freshFolder());
    const body = { image: 'https://a.test/1.png', prompt: png };
    expect(uploadFor(session, c, body, files)).toBeUndefined();
    expect(uploadFor(session, c, body, files, { checkAssets: true })).toBeDefined();
  });

  it('requests no asset unless assets are checked', async () => {
    const server = await httpServer();
    await uploaded({ image: png, last_frame_image_url: `${server.url}/1.png` });
    expect(server.requests).toEqual([]);
  });

  it('is refused without a store', async () => {
    const session = sessionIn(freshFolder(), {}, { store: () => Promise.resolve(undefined) });
    await expect(uploadFor(session, c, { image: png }, files)?.()).rejects.toMatchObject({ code: 'usage' });
  });

  it("puts the bytes in Protocol A's request", async () => {
    const image = { bytesBase64Encoded: png, mimeType: 'image/png' };
    const body = { model: 'veo-3', instances: [{ prompt: 'x', image }] };
    const exchange = await uploadFor(sessionIn(freshFolder()), a, body, files)?.();
    const base64 = Buffer.from('boat').toString('base64');
    expect(JSON.parse(String(exchange?.body))).toMatchObject({
      instances: [{ image: { bytesBase64Encoded: base64 } }],
    });
  });
});
