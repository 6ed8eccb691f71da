import { describe, expect, it } from 'vitest';
import { usageError } from '../../src/errors.ts';
import type { EarlierAsset } from '../../src/flows/earlier-job.ts';
import type { Session } from '../../src/flows/session.ts';
import { namedFiles, uploadFor, type LocalFiles } from '../../src/flows/uploads.ts';
import type { JsonObject } from '../../src/json.ts';
import { a } from '../../src/protocols/a/protocol.ts';
import { c } from '../../src/protocols/c/protocol.ts';
import { storedName, type Store } from '../../src/store/store.ts';
import { freshFolder } from '../support/servers.ts';
import { sessionIn } from './flow-deps.ts';

const content = (text: string): Uint8Array => new TextEncoder().encode(text);
const read = (path: string): Promise<Uint8Array> =>
  Promise.resolve(content(path === 'empty.png' ? '' : path));
const hasStore = (isSo: boolean): Session =>
  sessionIn(freshFolder(), {}, { hasStore: () => Promise.resolve(isSo) });

describe('the files in flags', () => {
  it('are replaced by content-based names, alone and in lists; URLs and other flags are unchanged', async () => {
    const flags = {
      image: 'boat.png',
      'reference-image': ['https://a.test/1.png', 'two.png'],
      prompt: 'boat.png',
    };
    const named = await namedFiles(hasStore(true), c, flags, read);
    const [boat, two] = ['boat.png', 'two.png'].map((path) => storedName(path, content(path)));
    expect(named.flags).toEqual({
      image: boat,
      'reference-image': ['https://a.test/1.png', two],
      prompt: 'boat.png',
    });
    expect([...named.files.keys()]).toEqual([boat, two]);
    expect(await named.files.get(boat ?? '')?.()).toEqual(content('boat.png'));
    expect(flags.image).toBe('boat.png');
  });

  it.each([
    ['an empty file', 'empty.png', true, 'empty.png is empty'],
    ['no store', 'boat.png', false, 'configure a store'],
    ['an earlier job and no store', '@intro:last', false, 'configure a store'],
  ])('are refused with %s', async (_, image, isThere, words) => {
    await expect(namedFiles(hasStore(isThere), c, { image }, read)).rejects.toMatchObject({
      code: 'usage',
      message: expect.stringContaining(words) as string,
    });
  });

  it('are refused if they change before they are sent', async () => {
    let text = 'one';
    const changing = (): Promise<Uint8Array> => Promise.resolve(content(text));
    const { files } = await namedFiles(hasStore(true), c, { image: 'boat.png' }, changing);
    text = 'two';
    await expect([...files.values()][0]?.()).rejects.toMatchObject({ code: 'usage' });
  });

  it('may be earlier jobs, which the caller resolves; Protocol A does not need a store for them', async () => {
    const asset: EarlierAsset = { name: 'sha256:x.mp4#last', read: () => Promise.resolve(content('png')) };
    const known = new Map([['@intro:last', asset]]);
    const named = await namedFiles(hasStore(false), a, { image: '@intro:last' }, read, known);
    expect(named.flags).toEqual({ image: asset.name });
    expect(named.files.get(asset.name)).toBe(asset.read);
    expect((await namedFiles(hasStore(true), c, { image: '@intro:last' }, read, known)).flags).toEqual({
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

  /** Uploads, and returns the body that is sent with the names that were uploaded, each with its content. */
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

  it('replaces names by URLs, and sends a frame under the hash of its own bytes', async () => {
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

  it('needs the frame of a job locally, while a file may be in the store', async () => {
    const none: LocalFiles = new Map();
    await expect(uploaded({ image: frame }, none)).rejects.toThrow('is a frame of an earlier job');
    await expect(uploaded({ image: png }, none)).rejects.toThrow('the store does not have it');
  });

  it('is skipped if the body contains no uploaded file, unless each asset is checked', () => {
    const session = sessionIn(freshFolder());
    const body = { image: 'https://a.test/1.png', prompt: png };
    expect(uploadFor(session, c, body, files)).toBeUndefined();
    expect(uploadFor(session, c, body, files, { checkAssets: true })).toBeDefined();
  });

  it('is refused without a store', async () => {
    const session = sessionIn(freshFolder(), {}, { store: () => Promise.resolve(undefined) });
    await expect(uploadFor(session, c, { image: png }, files)?.()).rejects.toMatchObject({ code: 'usage' });
  });

  it('sends the bytes in the request for Protocol A', async () => {
    const image = { bytesBase64Encoded: png, mimeType: 'image/png' };
    const body = { model: 'veo-3', instances: [{ prompt: 'x', image }] };
    const exchange = await uploadFor(sessionIn(freshFolder()), a, body, files)?.();
    const base64 = Buffer.from('boat').toString('base64');
    expect(JSON.parse(String(exchange?.body))).toMatchObject({
      instances: [{ image: { bytesBase64Encoded: base64 } }],
    });
  });
});
