import { describe, expect, it } from 'vitest';
import { isMarkup, markupText } from '../../src/http/failures.ts';

describe('isMarkup', () => {
  it.each([
    '<!DOCTYPE html><p>',
    '  <html>',
    '<head\n>',
    '<h1 class="x">',
    '<!-- x -->',
    '<?xml version="1.0"?>',
    '<br/>',
  ])('returns true for %j', (text) => {
    expect(isMarkup(text)).toBe(true);
  });
  it.each(['', 'x <html>', '<', '< html>', '<5', '{"a":"<html>"}', 'upstream connect error'])(
    'returns false for %j',
    (text) => {
      expect(isMarkup(text)).toBe(false);
    },
  );
});

describe('markupText', () => {
  it.each([
    [
      '<html><head><title>502 Bad Gateway</title></head><body><h1>502</h1><hr>nginx</body></html>',
      '502 Bad Gateway',
    ],
    [
      '<html><body><h1>503 Service Unavailable</h1>\nNo server is available.\n</body></html>',
      '503 Service Unavailable No server is available.',
    ],
    ['<title>\n Attention &#124; A &amp; B &lt;x&gt;&nbsp;&quot; </title>', 'Attention | A & B <x> "'],
    ['<script>let a = 1;</script><style>p { }</style><p>seen</p>', 'seen'],
    ['<title></title>only this', 'only this'],
    [
      '<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Expired</Message></Error>',
      'AccessDenied Expired',
    ],
    ['<p>cut <a href="', 'cut'],
    ['<p>&#9999999;&unknown;', '&#9999999;&unknown;'],
    ['<html></html>', ''],
  ])('converts %s to %s', (page, text) => {
    expect(markupText(page)).toBe(text);
  });
});
