import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import {
  CompleteMultipartUploadCommand,
  CopyObjectCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type PutObjectCommandInput,
  type S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { getSignedUrl } from '@aws-sdk/s3-request-presigner';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startSandbox } from '../../src/sandbox/server.ts';
import { storeAccount } from '../../src/sandbox/store/signature.ts';
import { newUser, type User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { awsClient } from './aws-client.ts';
import { account, configureStore, s3Server, type S3Server } from './s3-server.ts';

const submit = ['video', 'c', 'submit', 'a boat', '-m', 'vendor-h3-mini', '-d', '5'];
const withImage = [...submit, '--image', 'first.png'];

/** Creates a user who has configured a real store in every possible way. */
async function rehearsal(): Promise<{ user: User; real: S3Server }> {
  const real = await s3Server();
  const user = userHere(undefined, { ...account, AWS_ENDPOINT_URL_S3: real.url });
  writeFileSync(join(user.cwd, 'first.png'), Buffer.from('\0an image'));
  configureStore(user, real.url, 's3://bucket/inputs');
  await user.run(['config', 'set', 'sandbox.pace', '20ms']);
  return { user, real };
}

describe('mgw --sandbox', () => {
  test('stores inputs and results in the sandbox rather than in the configured store', async () => {
    const { user, real } = await rehearsal();
    const to = ['-o', 's3://bucket/{id}.mp4', '--json'];
    const ran = await user.run(['--sandbox', ...withImage, ...to]);
    expect(ran.code, ran.stderr + ran.stdout).toBe(0);
    expect(ran.json.job['state']).toBe('succeeded');
    const result = await user.run(['--sandbox', 'tts', 'Hello', '-o', 's3://bucket/{id}.mp3']);
    expect(result.code, result.stderr).toBe(0);
    expect(real.calls).toEqual([]);
    expect(real.objects.size).toBe(0);
  });

  test('uses neither a store.command nor credentials', async () => {
    const user = userHere(undefined, { MGW_SANDBOX: '1' });
    writeFileSync(join(user.cwd, 'first.png'), Buffer.from('\0an image'));
    await user.run(['config', 'set', 'store.command', '--', 'false']);
    const ran = await user.run(withImage);
    expect(ran.code, ran.stderr).toBe(0);
  });
});

test("sandbox exec redirects a script's S3 clients to the sandbox, even if an upload fails once, and hides the real credentials", async () => {
  const { user, real } = await rehearsal();
  const lines =
    'env > seen; mgw video c submit boat -m vendor-h3-mini -d 5 --image first.png -o s3://bucket/a.mp4';
  const extra = { AWS_SESSION_TOKEN: 'real-token', AWS_PROFILE: 'real', AWS_ENDPOINT_URL: real.url };
  const exec = ['sandbox', 'exec', '--fault', 'store-500x1', '--pace', '20ms', '--', 'sh', '-c', lines];
  const ran = await user.start(exec, { env: { ...user.env, ...extra } }).result;
  expect(ran.code, ran.stderr).toBe(0);
  expect(real.calls).toEqual([]);
  const seen = readFileSync(join(user.cwd, 'seen'), 'utf8');
  expect(seen).toMatch(/^AWS_ENDPOINT_URL_S3=http:\/\/127\.0\.0\.1:\d+\/s3$/m);
  for (const secret of [...Object.values(account), 'real-token', real.url])
    expect(seen).not.toContain(secret);
});

describe("the sandbox's storage with the AWS SDK", () => {
  async function served(faults: string[] = []): Promise<S3Client> {
    const user = newUser();
    const sandbox = await startSandbox({ stateDir: join(user.cwd, 'gateway'), faults });
    onTestFinished(() => sandbox.close());
    return awsClient(`${sandbox.url}/s3`, storeAccount);
  }

  const Bucket = 'bucket';
  const put = (s3: S3Client, Key: string, Body: PutObjectCommandInput['Body'], more = {}): Promise<unknown> =>
    s3.send(new PutObjectCommand({ Bucket, Key, Body, ...more }));
  const get = async (s3: S3Client, Key: string, more = {}): Promise<string | undefined> =>
    (await s3.send(new GetObjectCommand({ Bucket, Key, ...more }))).Body?.transformToString();
  const isError = (name: string): unknown => expect.objectContaining({ name }) as unknown;

  test('stores an object, lists it by prefix and folder, returns all or part of it, and removes it', async () => {
    const s3 = await served();
    await put(s3, "a/one (1) ü+'.txt", 'one', { Metadata: { sha256: 'x' }, ContentType: 'text/plain' });
    await put(s3, 'b.txt', 'two');
    const object = await s3.send(new GetObjectCommand({ Bucket, Key: "a/one (1) ü+'.txt" }));
    expect(object).toMatchObject({ Metadata: { sha256: 'x' }, ContentType: 'text/plain', ContentLength: 3 });
    expect(object.ETag).toBe(`"${createHash('md5').update('one').digest('hex')}"`);
    expect(await get(s3, 'b.txt', { Range: 'bytes=1-' })).toBe('wo');
    const listed = await s3.send(new ListObjectsV2Command({ Bucket, Prefix: 'a/' }));
    expect(listed.Contents?.map(({ Key }) => Key)).toEqual(["a/one (1) ü+'.txt"]);
    const top = await s3.send(new ListObjectsV2Command({ Bucket, Delimiter: '/' }));
    expect([top.Contents?.length, top.CommonPrefixes]).toEqual([1, [{ Prefix: 'a/' }]]);
    await s3.send(new DeleteObjectCommand({ Bucket, Key: 'b.txt' }));
    await expect(get(s3, 'b.txt')).rejects.toEqual(isError('NoSuchKey'));
  });

  test('stores a stream without its chunk lengths and checksums', async () => {
    const s3 = await served();
    const pieces = Array.from({ length: 40 }, (_, index) => Buffer.alloc(5000, index));
    const ContentLength = 40 * 5000;
    await put(s3, 'stream', Readable.from(pieces), { ContentLength });
    const { Body } = await s3.send(new GetObjectCommand({ Bucket, Key: 'stream' }));
    expect(Buffer.from((await Body?.transformToByteArray()) ?? '')).toEqual(Buffer.concat(pieces));
  });

  test('refuses to copy an object rather than storing wrong content', async () => {
    const s3 = await served();
    await put(s3, 'a', 'a');
    const copy = new CopyObjectCommand({ Bucket, Key: 'b', CopySource: `${Bucket}/a` });
    await expect(s3.send(copy)).rejects.toEqual(isError('NotImplemented'));
    await expect(get(s3, 'b')).rejects.toEqual(isError('NoSuchKey'));
  });

  test('never replaces an object if the request contains If-None-Match', async () => {
    const s3 = await served();
    const results = await Promise.allSettled(
      ['one', 'two', 'three'].map((body) => put(s3, 'x', body, { IfNoneMatch: '*' })),
    );
    const refused = results.flatMap((result) =>
      result.status === 'rejected' ? [result.reason as unknown] : [],
    );
    expect(refused).toEqual([isError('PreconditionFailed'), isError('PreconditionFailed')]);
  });

  test("joins a multipart upload's parts", async () => {
    const s3 = await served();
    const big = { Bucket, Key: 'big' };
    const { UploadId } = await s3.send(new CreateMultipartUploadCommand(big));
    const Parts = await Promise.all(
      ['first ', 'second'].map(async (Body, index) => {
        const part = { ...big, UploadId, PartNumber: index + 1 };
        const { ETag } = await s3.send(new UploadPartCommand({ ...part, Body }));
        return { ETag, PartNumber: index + 1 };
      }),
    );
    await s3.send(new CompleteMultipartUploadCommand({ ...big, UploadId, MultipartUpload: { Parts } }));
    expect(await get(s3, 'big')).toBe('first second');
    const { Uploads = [] } = await s3.send(new ListMultipartUploadsCommand({ Bucket }));
    expect(Uploads).toEqual([]);
  });

  test('refuses a missing, wrong or expired signature, and unsigned bytes', async () => {
    const s3 = await served();
    await put(s3, 'x', 'x');
    const presigned = (more = {}): Promise<string> =>
      getSignedUrl(s3, new GetObjectCommand({ Bucket, Key: 'x' }), { expiresIn: 60, ...more });
    const url = await presigned();
    expect((await fetch(url.split('?')[0] ?? '')).status).toBe(403);
    expect((await fetch(url)).status).toBe(200);
    expect((await fetch(url.replace('/x?', '/y?'))).status).toBe(403);
    const expired = await fetch(await presigned({ signingDate: new Date('2020-01-01') }));
    expect([expired.status, await expired.text()]).toEqual([403, expect.stringContaining('expired')]);
    s3.middlewareStack.add(
      (next) => (args) => next({ ...args, request: { ...(args.request as object), body: 'other!' } }),
      { step: 'finalizeRequest', priority: 'low' },
    );
    await expect(put(s3, 'y', 'signed')).rejects.toEqual(isError('XAmzContentSHA256Mismatch'));
  });

  test('stores nothing if a fault makes the upload fail', async () => {
    for (const [fault, name] of [
      ['store-500', 'InternalError'],
      ['store-slow-down', 'SlowDown'],
      ['store-expired', 'ExpiredToken'],
      ['store-bad-digest', 'BadDigest'],
      ['store-reset', 'TimeoutError'],
    ] as const) {
      const s3 = await served([`${fault}x1`]);
      await expect(put(s3, 'x', 'x'), fault).rejects.toEqual(isError(name));
      await expect(get(s3, 'x')).rejects.toEqual(isError('NoSuchKey'));
    }
  });
});
