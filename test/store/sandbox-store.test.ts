import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { AwsClient } from 'aws4fetch';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startSandbox } from '../../src/sandbox/server.ts';
import { storeAccount } from '../../src/sandbox/store/signature.ts';
import { newUser, type User } from '../support/cli.ts';
import { account, s3Server, type S3Server } from './s3-server.ts';

const submit = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '-d', '5'];
const withImage = [...submit, '--image', 'first.png'];

/** A user whose real store is configured in every way there is. */
async function rehearsal(): Promise<{ user: User; real: S3Server }> {
  const real = await s3Server();
  const user = newUser(undefined, { ...account, AWS_ENDPOINT_URL_S3: real.url });
  writeFileSync(join(user.cwd, 'first.png'), Buffer.from('an image'));
  await user.run(['config', 'set', 'store', 's3://bucket/inputs']);
  await user.run(['config', 'set', 'store.endpoint', real.url]);
  await user.run(['config', 'set', 'sandbox.pace', '20ms']);
  return { user, real };
}

describe('with --sandbox', () => {
  test('inputs and results go to the storage of the sandbox, and nothing to the configured store', async () => {
    const { user, real } = await rehearsal();
    const to = ['-o', 's3://bucket/{id}.mp4', '--json'];
    for (const protocol of [withImage, [...submit, '--reference-image', 'first.png']]) {
      const ran = await user.run(['--sandbox', ...protocol, ...to]);
      expect(ran.code, ran.stderr + ran.stdout).toBe(0);
      expect(ran.json.job['state']).toBe('succeeded');
    }
    const spoken = await user.run(['--sandbox', 'tts', 'Hello', '-o', 's3://bucket/{id}.mp3']);
    expect(spoken.code, spoken.stderr).toBe(0);
    expect(real.calls).toEqual([]);
    expect(real.objects.size).toBe(0);
  });

  test('neither a store.command nor credentials are needed or used', async () => {
    const user = newUser(undefined, { MGW_SANDBOX: '1' });
    writeFileSync(join(user.cwd, 'first.png'), Buffer.from('an image'));
    await user.run(['config', 'set', 'store.command', '--', 'false']);
    const ran = await user.run(withImage);
    expect(ran.code, ran.stderr).toBe(0);
  });

  test('an existing object is refused before anything is charged', async () => {
    const { user } = await rehearsal();
    const to = ['--sandbox', ...submit, '-o', 's3://bucket/boat.mp4', '--json'];
    expect((await user.run([...to, '--key', 'one'])).code).toBe(0);
    expect((await user.run([...to, '--key', 'two'])).json).toMatchObject({
      exit_code: 10,
      error: { code: 'output_exists', charged: 'no' },
    });
  });
});

test('sandbox exec leads every S3 client of a script to the sandbox, and hides the real credentials', async () => {
  const { user, real } = await rehearsal();
  const lines =
    'env > seen; mgw video c submit boat -m vendor-h3-mini -d 5 --image first.png -o s3://bucket/a.mp4';
  const extra = { AWS_SESSION_TOKEN: 'real-token', AWS_PROFILE: 'real', AWS_ENDPOINT_URL: real.url };
  const exec = ['sandbox', 'exec', '--pace', '20ms', '--', 'sh', '-c', lines];
  const ran = await user.run(exec, { env: { ...user.env, ...extra } });
  expect(ran.code, ran.stderr).toBe(0);
  expect(real.calls).toEqual([]);
  const seen = readFileSync(join(user.cwd, 'seen'), 'utf8');
  expect(seen).toMatch(/^AWS_ENDPOINT_URL_S3=http:\/\/127\.0\.0\.1:\d+\/s3$/m);
  for (const secret of [...Object.values(account), 'real-token', real.url])
    expect(seen).not.toContain(secret);
});

describe('the storage of the sandbox', () => {
  const s3 = new AwsClient({
    accessKeyId: storeAccount.AWS_ACCESS_KEY_ID,
    secretAccessKey: storeAccount.AWS_SECRET_ACCESS_KEY,
    service: 's3',
    region: 'eu-central-1',
    retries: 0,
  });

  async function served(faults: string[] = []): Promise<string> {
    const user = newUser();
    const sandbox = await startSandbox({ stateDir: join(user.cwd, 'gateway'), faults });
    onTestFinished(() => sandbox.close());
    return `${sandbox.url}/s3/bucket`;
  }

  const put = (url: string, body: string, headers = {}): Promise<Response> =>
    s3.fetch(url, { method: 'PUT', body, headers });

  test('stores, lists by prefix, gives back and removes an object', async () => {
    const bucket = await served();
    expect((await put(`${bucket}/a/one.txt`, 'one', { 'x-amz-meta-sha256': 'x' })).status).toBe(200);
    await put(`${bucket}/b.txt`, 'two');
    const got = await s3.fetch(`${bucket}/a/one.txt`);
    expect([await got.text(), got.headers.get('x-amz-meta-sha256')]).toEqual(['one', 'x']);
    expect(got.headers.get('etag')).toBe(`"${createHash('md5').update('one').digest('hex')}"`);
    const listed = await (await s3.fetch(`${bucket}?list-type=2&prefix=a%2F`)).text();
    expect(Array.from(listed.matchAll(/<Key>(.*?)<\/Key>/g), ([, key]) => key)).toEqual(['a/one.txt']);
    expect((await s3.fetch(`${bucket}/b.txt`, { method: 'DELETE' })).status).toBe(204);
    expect((await s3.fetch(`${bucket}/b.txt`)).status).toBe(404);
  });

  test('never replaces an object under If-None-Match', async () => {
    const bucket = await served();
    const results = await Promise.all(
      ['one', 'two', 'three'].map((body) => put(`${bucket}/x`, body, { 'if-none-match': '*' })),
    );
    expect(results.map(({ status }) => status).sort()).toEqual([200, 412, 412]);
  });

  test('puts the parts of a multipart upload together', async () => {
    const bucket = await served();
    const begun = await (await s3.fetch(`${bucket}/big?uploads=`, { method: 'POST' })).text();
    const id = /<UploadId>(.*?)</.exec(begun)?.[1] ?? '';
    const etags = await Promise.all(
      ['first ', 'second'].map(async (part, index) =>
        (await put(`${bucket}/big?partNumber=${index + 1}&uploadId=${id}`, part)).headers.get('etag'),
      ),
    );
    const parts = etags.map(
      (etag, i) => `<Part><PartNumber>${i + 1}</PartNumber><ETag>${etag}</ETag></Part>`,
    );
    const body = `<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`;
    expect((await s3.fetch(`${bucket}/big?uploadId=${id}`, { method: 'POST', body })).status).toBe(200);
    expect(await (await s3.fetch(`${bucket}/big`)).text()).toBe('first second');
    expect(await (await s3.fetch(`${bucket}?uploads=`)).text()).not.toContain('<Upload>');
  });

  test('refuses a missing, wrong or expired signature, and bytes that were not signed', async () => {
    const bucket = await served();
    await put(`${bucket}/x`, 'x');
    expect((await fetch(`${bucket}/x`)).status).toBe(403);
    const presigned = async (datetime?: string): Promise<string> => {
      const url = `${bucket}/x?X-Amz-Expires=60`;
      return (await s3.sign(url, { aws: { signQuery: true, ...(datetime && { datetime }) } })).url;
    };
    expect((await fetch(await presigned())).status).toBe(200);
    expect((await fetch((await presigned()).replace('/x?', '/y?'))).status).toBe(403);
    const expired = await fetch(await presigned('20200101T000000Z'));
    expect([expired.status, await expired.text()]).toEqual([403, expect.stringContaining('expired')]);
    const signed = await s3.sign(`${bucket}/x`, {
      method: 'PUT',
      body: 'signed',
      headers: { 'x-amz-content-sha256': createHash('sha256').update('signed').digest('hex') },
    });
    expect((await fetch(signed.url, { method: 'PUT', headers: signed.headers, body: 'other!' })).status).toBe(
      400,
    );
  });

  test.each([
    ['store-500', 500],
    ['store-slow-down', 503],
    ['store-expired', 403],
    ['store-bad-digest', 400],
  ])('answers an upload under %s with %i, and stores nothing', async (fault, status) => {
    const bucket = await served([`${fault}x1`]);
    expect((await put(`${bucket}/x`, 'x')).status).toBe(status);
    expect((await s3.fetch(`${bucket}/x`)).status).toBe(404);
  });

  test('breaks the connection of an upload under store-reset', async () => {
    const bucket = await served(['store-resetx1']);
    await expect(put(`${bucket}/x`, 'x')).rejects.toThrow();
    expect((await put(`${bucket}/x`, 'x')).status).toBe(200);
  });
});

test.each([
  ['store-500x1', 0],
  ['store-slow-downx1', 0],
  ['store-resetx1', 0],
  ['store-expired', 10],
])('a script under --fault %s ends with %i', async (fault, code) => {
  const { user } = await rehearsal();
  const lines = 'mgw video c submit boat -m vendor-h3-mini -d 5 --image first.png -o s3://bucket/a.mp4';
  const exec = ['sandbox', 'exec', '--pace', '20ms', '--fault', fault, '--json', '--', 'sh', '-c', lines];
  const ran = await user.run(exec);
  const { script_exit_code, bill } = ran.json as unknown as { script_exit_code: number; bill: unknown[] };
  expect([script_exit_code, bill.length], ran.stderr).toEqual([code, code === 0 ? 1 : 0]);
});
