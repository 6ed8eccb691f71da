import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MgwError } from '../../src/errors.ts';
import { checkTarget, mayGetKey, type TrustedGateway } from '../../src/http/download/follow.ts';

function gateway(baseUrl: string, ...trustedOrigins: string[]): TrustedGateway {
  return { baseUrl: new URL(baseUrl), trustedOrigins };
}

const cloud = gateway('https://api.gateway.example.com');
const local = gateway('http://127.0.0.1:8080');
const office = gateway('https://10.1.2.3');

describe('the API key', () => {
  it.each([
    ['the same origin', 'https://api.gateway.example.com/v1/videos/1/content', cloud],
    ['the same origin with an explicit port', 'https://api.gateway.example.com:443/file', cloud],
    ['https on the same site', 'https://files.example.com/1.mp4', cloud],
    ['https on a different port of the same site', 'https://api.gateway.example.com:8443/1.mp4', cloud],
    ['the site itself', 'https://example.com/1.mp4', cloud],
    ['a site below a suffix of two labels', 'https://cdn.shop.co.uk/x', gateway('https://api.shop.co.uk')],
    ['the same loopback host on any port', 'http://127.0.0.1:9999/x', local],
    [
      'a trusted origin',
      'https://files.elsewhere.net/x',
      gateway('https://a.example.com', 'https://files.elsewhere.net'),
    ],
    [
      'a trusted origin spelled with a slash',
      'https://f.net/x',
      gateway('https://a.example.com', 'https://f.net:443/'),
    ],
  ])('is sent to %s', async (_, url, to) => {
    expect(await mayGetKey(new URL(url), to)).toBe(true);
  });

  it.each([
    ['another site', 'https://files.elsewhere.net/x', cloud],
    ['the same site without TLS', 'http://files.example.com/x', cloud],
    ['the same host without TLS', 'http://api.gateway.example.com/x', cloud],
    ['a name with only the same ending', 'https://evil-example.com/x', cloud],
    ['a name with only the same beginning', 'https://api.gateway.example.com.evil.net/x', cloud],
    ['a neighbour below a public suffix', 'https://b.co.uk/x', gateway('https://a.co.uk')],
    ['a neighbour below a private suffix', 'https://b.github.io/x', gateway('https://a.github.io')],
    ['a bucket next to the gateway', 'https://b.s3.amazonaws.com/x', gateway('https://a.s3.amazonaws.com')],
    ['another loopback host', 'http://localhost:8080/x', local],
    ["an IP address if the gateway's host is a name", 'https://93.184.216.34/x', cloud],
    ['a neighbouring IP address', 'https://10.1.2.4/x', office],
    ['the same IP address on another port', 'https://10.1.2.3:8443/x', office],
    [
      'another port of a trusted origin',
      'https://f.net:8443/x',
      gateway('https://a.example.com', 'https://f.net'),
    ],
    ['an invalid trusted origin', 'https://f.net/x', gateway('https://a.example.com', 'f.net')],
  ])('is not sent to %s', async (_, url, to) => {
    expect(await mayGetKey(new URL(url), to)).toBe(false);
  });
});

describe('checkTarget', () => {
  // The base URL is an IP address, because a name would require a DNS lookup.
  const cloud = gateway('https://93.184.216.34');

  async function why(address: string, to = cloud, from?: string): Promise<string> {
    try {
      await checkTarget(address, to, from === undefined ? undefined : new URL(from));
    } catch (error) {
      expect(error).toBeInstanceOf(MgwError);
      expect(error).toMatchObject({
        code: 'result_unavailable',
        exitCode: 9,
        charged: 'yes',
        retry: 'never',
      });
      return (error as MgwError).message;
    }
    return '';
  }

  it.each([
    ['https://files.elsewhere.net/a.mp4?sign=1', cloud],
    ['http://files.elsewhere.net/a.mp4', cloud],
    ['http://127.0.0.1:9/a.mp4', local],
    ['http://localhost:9/a.mp4', local],
    ['http://[::1]:9/a.mp4', local],
    ['http://192.168.1.5/a.mp4', local],
    ['https://10.9.9.9/a.mp4', office],
    ['https://minio/a.mp4', office],
    ['http://169.254.7.7/a.mp4', gateway('http://169.254.7.7:80')],
  ])('allows %s', async (address, to) => {
    expect((await checkTarget(address, to)).href).toBe(address);
  });

  it.each([
    ['file:///etc/passwd', /not http/],
    ['data:video/mp4;base64,AAAA', /not http/],
    ['ftp://files.elsewhere.net/a', /not http/],
    ['https://user:secret@files.elsewhere.net/a', /credentials/],
    ['https://user@files.elsewhere.net/a', /credentials/],
    ['https://files.elsewhere.net/a\n', /white space/],
    ['https://files.else\nwhere.net/a', /white space/],
    [' https://files.elsewhere.net/a', /white space/],
    ['https://files.elsewhere.net/a b', /white space/],
    ['https://files.elsewhere.net/\u0000', /control/],
    ['https://files.elsewhere.net/\u009b', /control/],
    ['files.elsewhere.net/a', /not a valid URL/],
    ['', /not a valid URL/],
    ['http://169.254.169.254/latest', /private/],
    ['http://[::ffff:127.0.0.1]/a', /private/],
    ['http://127.0.0.1/a', /private/],
    ['http://2130706433/a', /private/],
    ['http://localhost/a', /private/],
    ['http://localhost./a', /private/],
    ['http://foo.localhost/a', /private/],
    ['http://0.0.0.0/a', /private/],
    ['http://10.0.0.1/a', /private/],
    ['http://[fe80::1]/a', /private/],
    ['http://[fd00::1]/a', /private/],
    ['http://metadata.google.internal/a', /private/],
  ])('refuses %j', async (address, reason) => {
    expect(await why(address)).toMatch(reason);
  });

  it.each([
    ['a cloud metadata address, even for a loopback gateway', 'http://169.254.169.254/latest', local],
    [
      'an IPv4 address inside an IPv6 address, even for a loopback gateway',
      'http://[::ffff:127.0.0.1]/a',
      local,
    ],
    ['this machine for a gateway in a private network', 'https://127.0.0.1/a', office],
    [
      'a different link-local host for a link-local gateway',
      'http://169.254.7.8/',
      gateway('http://169.254.7.7'),
    ],
  ])('refuses %s', async (_, address, to) => {
    expect(await why(address, to)).toMatch(/private/);
  });

  it('resolves a redirect against the URL that returned it', async () => {
    const from = new URL('https://files.elsewhere.net/a/b?c');
    expect((await checkTarget('../d#x', cloud, from)).href).toBe('https://files.elsewhere.net/d');
    expect((await checkTarget('//other.net/d', cloud, from)).href).toBe('https://other.net/d');
  });

  it('refuses a redirect from https to http, but not from http to https', async () => {
    expect(await why('http://files.elsewhere.net/a', cloud, 'https://files.elsewhere.net/a')).toMatch(
      /https to http/,
    );
    expect((await checkTarget('https://f.net/a', cloud, new URL('http://f.net/a'))).protocol).toBe('https:');
  });

  it('throws errors that contain no signatures or passwords', async () => {
    expect(await why('ftp://f.net/a?sign=SECRET')).not.toContain('SECRET');
    expect(await why('https://u:SECRET@f.net/a')).not.toContain('SECRET');
    expect(await why('https://u:SECRET@f.net/a b')).not.toContain('SECRET');
  });

  it('throws only its own errors, and never allows a private literal address', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.string(),
          fc.ipV4().map((ip) => `http://${ip}/`),
          fc.ipV6().map((ip) => `http://[${ip}]/`),
        ),
        async (address) => {
          const message = await why(address);
          if (/^http:\/\/(10|127)\./.test(address)) expect(message).toMatch(/private/);
        },
      ),
    );
  });
});
