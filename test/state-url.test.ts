import { describe, expect, it } from 'vitest';
import { parseStateUrl, maskPassword, hasPassword } from '../src/state-url.ts';

const secret = 'hunter2secret';

describe("a shared ledger's address", () => {
  it('has its parameters for mgw removed before it is passed to the database', () => {
    const url = parseStateUrl(
      'postgresql://mgw@db:6432/jobs?schema=team&lease=45s&connect_timeout=3&sslmode=require',
    );
    expect(url).toEqual({
      href: 'postgresql://mgw@db:6432/jobs',
      displayUrl: 'postgresql://mgw@db:6432/jobs?schema=team&lease=45s&connect_timeout=3&sslmode=require',
      password: '',
      schema: 'team',
      leaseMs: 45_000,
      responseTimeoutMs: 3000,
      tls: { mode: 'verify' },
    });
    expect(parseStateUrl('postgres://h/d')).toMatchObject({
      schema: 'mgw',
      leaseMs: 30_000,
      responseTimeoutMs: 10_000,
    });
  });

  it.each([
    `postgres://mgw:${secret}@db/jobs`,
    `postgres://db/jobs?user=mgw&password=${secret}`,
    `postgres://mgw:${secret}@db:notaport/jobs`,
    `postgres://mgw:${secret}@/jobs/x y`,
    `postgres://mgw:p@ss/${secret}@db/jobs`,
    `postgres://mgw:12/${secret}@db/jobs`,
    `postgres://mgw:12?${secret}@db/jobs`,
    `postgres://mgw:12/a?${secret}@db/jobs`,
    `postgres://mgw:#${secret}@db/jobs`,
    `postgres://mgw@db/jobs?Password=${secret}`,
    `postgres://mgw@db/jobs?pasword=${secret}`,
    `postgres://mgw@db/jobs?pass=${secret}&lease=5s`,
    `postgres://mgw@db/jobs?password=x&password=${secret}`,
  ])('never exposes its password in an error: %s', (text) => {
    expect(maskPassword(text)).not.toContain(secret);
    try {
      expect(parseStateUrl(text).displayUrl).not.toContain(secret);
    } catch (error) {
      expect(String(error)).not.toContain(secret);
    }
  });

  it('is accepted with the parameters that database hosts add', () => {
    const { displayUrl, href } = parseStateUrl('postgres://mgw@db/jobs?channel_binding=require');
    expect([displayUrl, href]).toEqual([
      'postgres://mgw@db/jobs?channel_binding=***',
      'postgres://mgw@db/jobs?channel_binding=require',
    ]);
  });

  it('provides its password only to the code that redacts it', () => {
    expect(parseStateUrl('postgres://mgw:a%2Fb%40c@db/jobs').password).toBe('a/b@c');
    expect(hasPassword('postgres://mgw:x@db/jobs')).toBe(true);
    expect(hasPassword('postgres://mgw:p/x@db/jobs')).toBe(true);
    expect(hasPassword('postgres://mgw:12/x@db/jobs')).toBe(true);
    expect(hasPassword('postgres://mgw@db/jobs')).toBe(false);
    expect(hasPassword('postgres://mgw@db:6432/jobs')).toBe(false);
    expect(hasPassword(undefined)).toBe(false);
  });

  it.each([
    ['/var/lib/mgw', /postgres:\/\/USER/],
    ['https://db/jobs', /postgres:\/\/USER/],
    ['postgres://db', /postgres:\/\/USER/],
    ['postgres://db/jobs?schema=a;b', /schema/],
    ['postgres://db/jobs?lease=5', /lease/],
    ['postgres://db/jobs?lease=10ms', /lease/],
    ['postgres://db/jobs?connect_timeout=0', /connect_timeout/],
    ['postgres://db/jobs?sslmode=prefer', /sslmode=verify-full, verify-ca, require, no-verify, disable$/],
    ['postgres://db/jobs?ssl=0', /sslmode/],
    ['postgres://db/jobs?leas=5s', /parameter lease instead of leas$/],
    ['postgres://db/jobs?uselibpqcompat=true', /sslmode/],
    ['postgres://mgw@db/jobs?Password=x', /parameter password instead of Password$/],
    ['postgres://mgw:12/34@db/jobs', /%2F/],
  ])('is refused, and the error explains the reason, if it is %s', (text, why) => {
    expect(() => parseStateUrl(text)).toThrow(why);
  });
});
