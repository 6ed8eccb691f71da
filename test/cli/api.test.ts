import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { withoutKey } from '../../src/cli/commands/api/print.ts';
import { pathBelow } from '../../src/cli/commands/api/api.ts';
import { redactor } from '../../src/redact.ts';
import { canaryKey, type User } from '../support/cli.ts';
import { userHere } from '../support/one-process.ts';
import { runOnScreen } from '../support/screen.ts';
import { speechServer, type Answer, type SpeechServer } from '../speech/harness.ts';

async function bench(...answers: Answer[]): Promise<{ user: User; server: SpeechServer }> {
  const server = await speechServer(...answers);
  return { server, user: userHere(server.url) };
}

const say =
  (status: number, body: string | Buffer, headers: Record<string, string> = {}): Answer =>
  (response) =>
    void response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body);

describe('mgw api GET', () => {
  it('sends the key and prints the body unchanged', async () => {
    const { user, server } = await bench(say(200, '{"data": [ ]}'));
    const run = await user.run(['api', 'get', '/v1/models?x=1']);
    expect([run.code, run.stdout, run.stderr]).toEqual([0, '{"data": [ ]}', '']);
    expect(server.requests).toMatchObject([
      { path: '/v1/models?x=1', headers: { authorization: `Bearer ${canaryKey}` } },
    ]);
  });

  it('retries after 429 and 5xx', async () => {
    const { user, server } = await bench(say(502, ''), say(200, '{}'));
    expect((await user.run(['api', 'GET', '/v1/models'])).code).toBe(0);
    expect(server.requests).toHaveLength(2);
  });

  it('prints the beginning of an overlong error response, and does not retry', async () => {
    const { user, server } = await bench(say(404, 'x'.repeat(2 * 1024 * 1024)));
    const run = await user.run(['api', 'GET', '/v1/nothing']);
    expect([run.code, run.stdout.length]).toEqual([4, 1024 * 1024]);
    expect(server.requests).toHaveLength(1);
  });

  it('prints binary data unchanged', async () => {
    const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, index) => index % 256));
    const { user } = await bench(say(200, bytes, { 'content-type': 'video/mp4' }));
    const { child } = user.start(['api', 'GET', '/v1/videos/t/content']);
    const chunks: Buffer[] = [];
    child.stdout?.on('data', (chunk: Buffer) => chunks.push(chunk));
    await new Promise((resolve) => child.once('close', resolve));
    expect(Buffer.concat(chunks)).toEqual(bytes);
  });

  it('prints each line of text as it arrives, and the received part of a truncated response', async () => {
    let cut: (() => void) | undefined;
    const { user } = await bench((response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: one\n\ndata: t');
      cut = () => response.destroy();
    });
    const { child, result } = user.start(['api', 'GET', '/x']);
    const first = await new Promise((resolve) => child.stdout?.once('data', resolve));
    expect(String(first)).toBe('data: one\n\n');
    cut?.();
    expect(await result).toMatchObject({ code: 6, stdout: 'data: one\n\ndata: t' });
  });

  it.each(['text/plain', 'video/mp4', ''])(
    'writes no control characters from a %j response to a terminal, and ends the last line with a newline',
    async (type) => {
      const { user } = await bench(
        say(200, `a\u{1b}[2J\u{9b}2J\u{202e}b ${canaryKey}`, { 'content-type': type }),
      );
      const { stdout } = await runOnScreen(['api', 'GET', '/x'], user.env, 80);
      expect(stdout).toBe('a\\u{1b}[2J\\u{9b}2J\\u{202e}b [redacted]\n');
    },
  );

  it('prints text in any character set unchanged', async () => {
    const bytes = Buffer.from([0xc4, 0xe3, 0xba, 0xc3, 0x0a, 0xff]);
    const { user } = await bench(say(200, bytes, { 'content-type': 'text/plain; charset=gbk' }));
    const { child } = user.start(['api', 'GET', '/x']);
    const chunks: Buffer[] = [];
    child.stdout?.on('data', (chunk: Buffer) => chunks.push(chunk));
    await new Promise((resolve) => child.once('close', resolve));
    expect(Buffer.concat(chunks)).toEqual(bytes);
  });

  it('sends the key as required by --auth', async () => {
    const { user, server } = await bench(say(200, '{}'));
    for (const auth of ['x-api-key', 'none']) await user.run(['api', 'GET', '/x', '--auth', auth]);
    const keys = server.requests.map(({ headers }) => [headers['authorization'], headers['x-api-key']]);
    expect(keys).toEqual([
      [undefined, canaryKey],
      [undefined, undefined],
    ]);
  });

  it('prints the status and headers with --include, and hides secrets', async () => {
    const { user } = await bench(
      say(200, 'hello', { 'content-type': 'text/plain', 'set-cookie': 'a=b', 'x-request-id': 'r1' }),
    );
    const { stdout } = await user.run(['api', 'GET', '/x', '--include']);
    expect(stdout).toMatch(/^HTTP 200\n/);
    expect(stdout).toContain('x-request-id: r1\n');
    expect(stdout).toContain('set-cookie: [redacted]');
    expect(stdout.endsWith('\n\nhello')).toBe(true);
  });

  it('prints one document with --json, and hides the key if the response contains it', async () => {
    const { user } = await bench(say(200, JSON.stringify({ echo: canaryKey })));
    const run = await user.run(['api', 'GET', '/x', '--json']);
    expect(run.json).toMatchObject({ ok: true, status: 200, body: { echo: '[redacted]' } });
    expect((await user.run(['api', 'GET', '/x'])).stdout).toBe('{"echo":"[redacted]"}');
  });

  it('encodes a binary response in Base64 with --json', async () => {
    const bytes = Buffer.from([0, 1, 0xff, 0xfe, 0x80]);
    const { user } = await bench(say(200, bytes, { 'content-type': 'video/mp4' }));
    const { json } = await user.run(['api', 'GET', '/x', '--json']);
    expect(json).toMatchObject({ ok: true, status: 200, body_base64: bytes.toString('base64') });
    expect(json).not.toHaveProperty('body');
  });
});

describe('mgw api POST', () => {
  it('sends the exact body with the given headers', async () => {
    const { user, server } = await bench(say(200, '{}'));
    writeFileSync(join(user.cwd, 'body.json'), '{ "n": 12345678901234567890 }');
    const run = await user.run([
      'api',
      'POST',
      '/',
      '--body',
      '@body.json',
      '--header',
      'X-TC-Action: DescribeTaskDetail',
    ]);
    expect(run.code, run.stderr).toBe(0);
    expect(server.requests[0]).toMatchObject({
      path: '/',
      body: readFileSync(join(user.cwd, 'body.json'), 'utf8'),
      headers: { 'x-tc-action': 'DescribeTaskDetail', 'content-type': 'application/json' },
    });
  });

  it('reads the body from standard input, and sends a body that is not JSON unchanged', async () => {
    const { user, server } = await bench(say(200, '{}'));
    await user.run(['api', 'POST', '/x', '--body', '-', '--header', 'Content-Type: text/plain'], {
      stdin: 'hi',
    });
    expect(server.requests[0]).toMatchObject({ body: 'hi', headers: { 'content-type': 'text/plain' } });
  });

  it.each([
    ['429', say(429, ''), { exit_code: 6, error: { code: 'rate_limited', charged: 'no', retry: 'safe' } }],
    [
      '500',
      say(500, '{}'),
      { exit_code: 7, error: { code: 'submit_unknown', charged: 'maybe', retry: 'never' } },
    ],
    ['a reset', (response) => void response.destroy(), { exit_code: 7, error: { charged: 'maybe' } }],
    [
      '400',
      say(400, '{"message":"bad"}'),
      { exit_code: 4, body: { message: 'bad' }, error: { charged: 'no' } },
    ],
    ['401', say(401, '{}'), { exit_code: 3, error: { code: 'auth' } }],
    ['302', say(302, '', { location: 'https://evil.example/' }), { exit_code: 7 }],
  ] as [string, Answer, object][])('does not retry after %s', async (_, answer, expected) => {
    const { user, server } = await bench(answer);
    const run = await user.run(['api', 'POST', '/x', '--body', '{}', '--json', '--retries', '0']);
    expect(run.json).toMatchObject(expected);
    expect(server.requests).toHaveLength(1);
  });

  it('retries only if the gateway reports that it did not process the request', async () => {
    let answers = 0;
    const { user, server } = await bench((response) => {
      response.writeHead((answers += 1) === 1 ? 429 : 500).end('{}');
    });
    const run = await user.run(['api', 'POST', '/x', '--body', '{}', '--json']);
    expect(run.json).toMatchObject({ exit_code: 7 });
    expect(server.requests).toHaveLength(2);
  });

  it('reports the number of attempts if no attempt was accepted', async () => {
    const busy = say(429, '{"error":{"message":"slow down"}}', { 'retry-after-ms': '1' });
    const { user, server } = await bench(busy, busy);
    const run = await user.run(['api', 'POST', '/x', '--body', '{}', '--retries', '1']);
    expect(run.stderr).toContain('Not accepted after 2 attempts: HTTP 429: slow down');
    expect([run.code, server.requests.length]).toEqual([6, 2]);
  });

  it('exits with 7 after one request if the response is truncated, because the request may have been processed', async () => {
    const { user, server } = await bench((response) => {
      response.writeHead(200, { 'content-length': '100' }).write('{"id":', () => response.destroy());
    });
    const run = await user.run(['api', 'POST', '/x', '--body', '{}', '--json']);
    expect(run.json).toMatchObject({ exit_code: 7, error: { code: 'submit_unknown', charged: 'maybe' } });
    expect(server.requests).toHaveLength(1);
  });

  it("prints the body of an error response on stdout, and mgw's error on stderr", async () => {
    const { user } = await bench(say(400, '{"error":{"message":"no such field"}}'));
    const run = await user.run(['api', 'POST', '/x', '--body', '{}']);
    expect([run.code, run.stdout]).toEqual([4, '{"error":{"message":"no such field"}}']);
    expect(run.stderr).toContain('HTTP 400: no such field');
  });
});

describe('response text without the key', () => {
  const redact = redactor([canaryKey]);
  const shownOf = async (chunks: Buffer[]): Promise<string> => {
    const shown: Uint8Array[] = [];
    for await (const chunk of withoutKey(chunks, redact)) shown.push(chunk);
    return Buffer.concat(shown).toString();
  };

  it('is printed completely, regardless of where it is split into chunks', async () => {
    const text = `data: {"authorization":"Bearer ${canaryKey}","多":"${canaryKey}"}\n\n${canaryKey}`;
    for (let at = 0; at <= Buffer.byteLength(text); at += 1) {
      const bytes = Buffer.from(text);
      expect(await shownOf([bytes.subarray(0, at), bytes.subarray(at)])).toBe(redact(text));
    }
  });

  it('is printed completely if it is a single line of many megabytes', async () => {
    const part = Buffer.from(`${'x'.repeat(65_500)}${canaryKey}`);
    const shown = await shownOf(Array.from({ length: 64 }, () => part));
    expect(shown).toBe(`${'x'.repeat(65_500)}[redacted]`.repeat(64));
  });
});

it('mgw api refuses invalid input, and sends nothing', async () => {
  const { user, server } = await bench(say(200, '{}'));
  const invalid: [string[], RegExp][] = [
    [['api', 'PUT', '/x'], /METHOD/],
    [['api', 'GET', 'v1/models'], /begin with \//],
    [['api', 'GET', 'https://other.example/v1/models'], /not below the base URL/],
    [['api', 'GET', '/x', '--body', '{}'], /--body requires POST/],
    [['api', 'POST', '/x', '--body', '{'], /--body is not JSON/],
    [['api', 'POST', '/x', '--body', '@missing.json'], /--body/],
    [['api', 'GET', '/x', '--header', 'nonsense'], /--header/],
    [['api', 'GET', '/x', '--header', `Authorization: Bearer ${canaryKey}`], /--auth/],
    [['api', 'GET', '/x', '--header', 'Host: x'], /--header Host/],
    [['api', 'GET', '/x', '--header', 'A: b', '--header', 'a: c'], /only once/],
    [['api', 'GET', '/x', '--header', 'A: b\r\nC: d'], /ASCII|Name: value/],
    [['api', 'GET', '/x', '--auth', 'basic'], /bearer, x-api-key, none/],
  ];
  for (const [args, message] of invalid) {
    const run = await user.run(args);
    expect([args, run.code, run.stdout]).toEqual([args, 2, '']);
    expect(run.stderr).toMatch(message);
    expect(run.stderr).not.toContain(canaryKey);
  }
  expect(server.requests).toHaveLength(0);
});

describe('a path', () => {
  const base = new URL('https://gateway.example:8443/proxy');

  it.each([
    ['/v1/models', '/v1/models'],
    ['/v1/models?a=1&b=ü', '/v1/models?a=1&b=%C3%BC'],
    ['/v1/a b#c', '/v1/a%20b'],
    ['https://gateway.example:8443/proxy/v1/models', '/v1/models'],
    ['/', '/'],
    ['//evil.example/x', '//evil.example/x'],
  ])('is requested below the base URL: %s becomes %s', (path, expected) => {
    expect(pathBelow(base, path)).toBe(expected);
  });

  it.each([
    'https://gateway.example/proxy/v1',
    'http://gateway.example:8443/proxy/v1',
    'https://gateway.example:8443/other',
    'https://gateway.example:8443/proxyother',
    'https://user:pass@gateway.example:8443/proxy/v1',
    '/../x',
    '/%2e%2e/x',
    'v1/models',
    'file:///etc/passwd',
    '@evil.example/',
    '\\\\evil.example',
  ])('is refused: %s', (path) => {
    expect(() => pathBelow(base, path)).toThrow(/PATH/);
  });
});
