import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium, type Browser, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GalleryData } from '../../../src/gallery/data.ts';
import { openFileLedger } from '../../../src/ledger/file-ledger.ts';
import { newJobId } from '../../../src/ledger/names.ts';
import { canaryKey, type User } from '../../support/cli.ts';
import { userHere } from '../../support/one-process.ts';

const executablePath = '/usr/bin/chromium';
const isThere = existsSync(executablePath);
const flags =
  '--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync --renderer-process-limit=1 --autoplay-policy=no-user-gesture-required';

const attack = '</script><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>';
const rows = [
  {
    id: 'boat',
    protocol: 'c',
    model: 'vendor-h3-mini',
    duration: 5,
    prompt: 'a paper boat at sea',
    tags: 'sea',
  },
  { id: 'boat-2k', protocol: 'c', model: 'vendor-h3', duration: 5, prompt: 'a paper boat at sea' },
  {
    id: 'evil',
    protocol: 'c',
    model: 'vendor-h3-mini',
    duration: 5,
    prompt: attack,
    output: 'e #?%"\'<i>.mp4',
  },
  { id: 'mp3', protocol: 'tts', text: 'The boat is made of paper.' },
  { id: 'wav', protocol: 'tts', text: 'The boat is made of paper.', format: 'wav' },
  { id: 'ogg', protocol: 'tts', text: 'The harbour sleeps.', format: 'ogg_opus' },
];

let browser: Browser;
let page: Page;
let user: User;
let url: string;

beforeAll(async () => {
  if (!isThere) return;
  user = userHere(undefined, { MGW_API_KEY: canaryKey });
  await user.run(['config', 'set', 'sandbox.pace', '50ms']);
  writeFileSync(join(user.cwd, 'm.jsonl'), rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const ran = await mgw('batch', 'run', 'm.jsonl', '-o', join(user.cwd, 'clips/{id}.{ext}'));
  expect(ran.code, ran.stderr).toBe(0);
  await putHostileJob();
  // Only the build contains the gallery's page.
  const made = await user.start(['--sandbox', 'jobs', 'gallery', '-o', 'review/']).result;
  expect(made, made.stderr).toMatchObject({ code: 0, stdout: `${join(user.cwd, 'review/index.html')}\n` });
  url = pathToFileURL(join(user.cwd, 'review/index.html')).href;
  browser = await chromium.launch({ executablePath, args: flags.split(' ') });
  page = await newPage(browser);
}, 120_000);

afterAll(async () => {
  if (isThere) await browser.close();
});

function mgw(...args: string[]): ReturnType<User['run']> {
  return user.run(['--sandbox', ...args]);
}

// Adds a failed job whose message, model and handle are hostile.
async function putHostileJob(): Promise<void> {
  const ledger = await openFileLedger(join(user.cwd, 'state/sandbox/ledger'), () => Date.now());
  const message = `${attack} ${canaryKey} https://cdn.example.com/v.mp4?X-Signature=5d41402abc ${user.cwd}/x`;
  const prepared = {
    type: 'prepared',
    protocol: 'c',
    base_url: 'sandbox',
    fingerprint: 'f',
    account: '',
  } as const;
  await ledger.create(newJobId(Date.now() + 1000), [
    { ...prepared, model: '\u202eנמל\u202c" onmouseover="window.hacked=1', request: { prompt: attack } },
    { type: 'accepted', handle: 'task-1' },
    { type: 'finished', state: 'failed', native_status: 'x', error: { code: 'task_failed', message } },
  ]);
}

/** The forbidden actions that pages have performed. */
const faults: string[] = [];

async function newPage(browser: Browser): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 960, height: 640 } });
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('dialog', (dialog) => faults.push(dialog.message()));
  page.on('request', (sent) => {
    if (!/^(file|blob):|^http:\/\/127\.0\.0\.1:/.test(sent.url())) faults.push(sent.url());
  });
  await page.addInitScript(() => {
    const made = new Set<HTMLMediaElement>();
    const violations: string[] = [];
    Object.assign(window, { violations });
    const maker = document as unknown as { createElement: (name: string) => Element };
    const create = maker.createElement.bind(document);
    maker.createElement = (name) => {
      const element = create(name);
      if (element instanceof HTMLMediaElement) made.add(element);
      return element;
    };
    Object.assign(window, { decoders: () => [...made].filter((media) => media.hasAttribute('src')).length });
    document.addEventListener('securitypolicyviolation', (event) => {
      violations.push(event.violatedDirective);
    });
  });
  return page;
}

/** Opens an address in a page that all tests share, because each additional page would start a process. */
async function open(address: string, stored = '{}'): Promise<void> {
  const script = await page.addInitScript((kept) => {
    if (location.protocol === 'about:') return;
    localStorage.clear();
    Object.assign(localStorage, JSON.parse(kept));
  }, stored);
  // Open an empty page first, because the browser would not load an address that differs only in its fragment.
  await page.goto('about:blank');
  await page.goto(address);
  // Each call adds its own script, because the order of several scripts is not defined.
  await script.dispose();
}

const tile = (name: string): ReturnType<Page['locator']> =>
  page.locator('.tile', { has: page.locator(`.name bdi:text-is("${name}")`) });

// Waits for a view to close, because going back in the history is asynchronous.
async function isClosed(): Promise<void> {
  await page.waitForFunction(() => document.querySelector('dialog[open]') === null);
}

async function save(button: string, path: string): Promise<void> {
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: button }).click(),
  ]);
  await download.saveAs(path);
}

// Without a browser, these tests are reported as skipped.
describe.skipIf(!isThere)('a gallery in Chromium', () => {
  it('plays every kind of file, runs no code from prompts, models, file names or errors, and loads nothing from other hosts', async () => {
    await open(url);
    await page.waitForFunction(() => document.querySelectorAll('.poster.drawn').length === 3);
    expect(await page.locator('.tile .bars').count()).toBeGreaterThanOrEqual(1);
    await tile('boat').hover();
    await page.waitForFunction(
      () => (document.querySelector<HTMLVideoElement>('.preview')?.currentTime ?? 0) > 0,
    );
    for (const id of ['evil', 'mp3', 'wav', 'ogg']) {
      await tile(id)
        .locator('.open')
        .click({ position: { x: 60, y: 170 } });
      await page.waitForFunction(() => {
        const media = document.querySelector<HTMLMediaElement>('.stage video, .stage audio');
        return media !== null && media.currentTime > 0 && media.error === null;
      });
      await page.keyboard.press('Escape');
      await isClosed();
    }
    expect(await page.evaluate(() => (window as unknown as { decoders(): number }).decoders())).toBe(0);
    const html = readFileSync(join(user.cwd, 'review/index.html'), 'utf8');
    for (const secret of [canaryKey, canaryKey.slice(10, 30), '5d41402abc', user.cwd])
      expect(html).not.toContain(secret);
    expect(await tile('evil').locator('.prompt').textContent()).toBe(attack);
    const failed = page.locator('.tile.failed');
    expect(await failed.locator('.reason').textContent()).toContain(
      `${attack} [redacted] https://cdn.example.com/v.mp4?X-Signature=[redacted]`,
    );
    await failed.hover();
    await failed.locator('.open').click({ position: { x: 60, y: 170 } });
    expect(await page.evaluate(() => (window as { hacked?: number }).hacked)).toBeUndefined();
    expect(faults).toEqual([]);
    // Escaping does not prevent these attacks. The page's content security policy does.
    await page.evaluate(() => {
      document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.hacked=1">');
      const script = document.createElement('script');
      script.textContent = 'window.hacked=1';
      document.body.append(script);
      fetch('https://cdn.example.com/').catch(() => undefined);
    });
    const closed = ['connect-src', 'img-src', 'script-src-attr', 'script-src-elem'];
    await page.waitForFunction((all) => {
      const { violations } = window as unknown as { violations: string[] };
      return all.every((each) => violations.includes(each));
    }, closed);
    expect(await page.evaluate(() => (window as { hacked?: number }).hacked)).toBeUndefined();
    faults.length = 0;
  });

  it('can be filtered, rated and marked with keys, stores the results, and exports runnable rows and importable ratings', async () => {
    await open(`${url}#sort=name`);
    await page.keyboard.press('/');
    await page.keyboard.type('PAPER sea');
    const found = async (): Promise<unknown> => [
      await page.locator('.search input').inputValue(),
      await page.locator('.count').textContent(),
    ];
    await expect.poll(found, { timeout: 30_000 }).toEqual(['PAPER sea', '2 of 7 jobs']);
    expect(page.url()).toContain('text=PAPER+sea');
    await tile('boat').locator('.open').focus();
    for (const key of ['2', 'x', 'Enter', ' ', 'ArrowRight', '5']) await page.keyboard.press(key);
    expect(await page.locator('.big .place').textContent()).toBe('2 / 2');
    await page.locator('.big textarea').fill('the best "sea" <b>');
    await page.keyboard.press('Escape');
    await isClosed();
    // On a busy machine, Chromium loses data that a page from a file has stored, so the test stores the data again.
    await open(page.url(), await page.evaluate(() => JSON.stringify(localStorage)));
    // Poll, because `count` does not wait for elements.
    await expect.poll(() => tile('boat').locator('.star.on').count()).toBe(2);
    expect(await tile('boat-2k').locator('.star.on').count()).toBe(5);
    await page.getByRole('button', { name: 'Export' }).click();
    await save('Save redo.jsonl', join(user.cwd, 'redo.jsonl'));
    await save('Save ratings.json', join(user.cwd, 'ratings.json'));
    expect(readFileSync(join(user.cwd, 'redo.jsonl'), 'utf8').trim().split('\n')).toHaveLength(1);
    const again = await mgw('batch', 'run', 'redo.jsonl', '-o', join(user.cwd, 'again/{id}.{ext}'), '--json');
    expect(again.json).toMatchObject({ ok: true, batch: { states: { done: 1 } } });
    expect(await mgw('jobs', 'rate', '--import', 'ratings.json')).toMatchObject({ code: 0 });
    const shown = await mgw('jobs', 'show', '@m/boat-2k', '--json');
    expect(shown.json.job).toMatchObject({ rating: 5, note: 'the best "sea" <b>' });
    expect((await mgw('batch', 'retry', 'm', '--rated', '2')).stdout).toBe(
      `${join(user.cwd, 'clips/boat.2.mp4')}\n`,
    );
    expect(faults).toEqual([]);
  });

  it("highlights the item to which keys apply, keeps the focus after a click on its tools, and plays a prompt's takes in sync", async () => {
    await open(url);
    const focused = (): Promise<string | undefined> =>
      page.evaluate(() => document.activeElement?.closest<HTMLElement>('.tile')?.dataset['id']);
    const id = (place: number): Promise<string | null> =>
      page.locator('.tile').nth(place).getAttribute('data-id');
    await page.keyboard.press('4');
    expect(await focused()).toBe(await id(0));
    await page.locator('.tile').nth(1).locator('.compared').click();
    expect(await focused()).toBe(await id(1));
    await page.keyboard.press(' ');
    expect(await page.locator('.tile').nth(1).locator('.compared').getAttribute('aria-pressed')).toBe('true');
    const outline = page.locator('.tile').nth(1);
    expect(await outline.evaluate((element) => getComputedStyle(element).outlineStyle)).toBe('solid');
    await tile('boat').locator('.open').focus();
    await page.keyboard.press('Enter');
    await page.keyboard.press('c');
    await page.waitForFunction(() => {
      const videos = [...document.querySelectorAll<HTMLVideoElement>('.pane video')];
      const [one, other] = videos;
      if (one === undefined || other === undefined || videos.length !== 2) return false;
      const isRunning = !one.paused && !other.paused && one.currentTime > 0.3;
      return isRunning && Math.abs(one.currentTime - other.currentTime) < 0.15 && one.muted !== other.muted;
    });
    expect(page.url()).toMatch(/&compare=job_\w+%2Cjob_\w+$/);
    await page.keyboard.press(' ');
    expect(
      await page
        .locator('.pane video')
        .evaluateAll((all) => all.every((one) => (one as HTMLVideoElement).paused)),
    ).toBe(true);
  });

  it('is small and uses few decoders while scrolling, even with many jobs, and marks a video that differs from its request', async () => {
    const html = readFileSync(join(user.cwd, 'review/index.html'), 'utf8');
    const [, json = ''] = /id="data">([^]*?)<\/script>/.exec(html) ?? [];
    const data = JSON.parse(json) as GalleryData;
    const films = data.items.filter(({ files }) => files[0]?.kind === 'video');
    const items = Array.from({ length: 600 }, (_, index) => {
      const film = films[index % films.length];
      const href = `${film?.files[0]?.href ?? ''}#${index}`;
      const redo = { ...film?.redo, prompt: `take ${index} of ${'a paper boat at sea, '.repeat(15)}` };
      return {
        ...film,
        id: `job_${String(index).padStart(14, '0')}`,
        redo,
        files: [{ ...film?.files[0], href }],
      };
    });
    const mismatches = ['duration 5 s instead of 8 s', `ratio ${attack}`];
    const boat = items.find(({ key }) => key === 'm/boat');
    expect(boat?.files[0]?.delivered).toBe('5 s, 1280x720, 24 fps, no sound');
    Object.assign(boat?.files[0] ?? {}, { mismatches });
    const large = html.replace(json, () => JSON.stringify({ ...data, items }).replaceAll('<', '\\u003c'));
    expect(Buffer.byteLength(large)).toBeLessThan(900_000);
    writeFileSync(join(user.cwd, 'review/large.html'), large);
    await open(url.replace('index.html', 'large.html'));
    expect(await page.locator('.count').textContent()).toBe('600 jobs');
    const differing = page.locator('.tile', { has: page.locator('.badge.differs') });
    expect(await differing.locator('.badge.differs').textContent()).toBe(mismatches.join(', '));
    expect(await differing.locator('.plays').textContent()).toBe('▶ 5 s');
    await differing.locator('.open').focus();
    await page.keyboard.press('Enter');
    const facts = await page.locator('.big dl').textContent();
    expect(facts).toContain('delivered5 s, 1280x720, 24 fps, no sounddiffersduration 5 s instead of 8 s');
    expect(facts).toMatch(/price\d+ credits/);
    await page.keyboard.press('Escape');
    await isClosed();
    let max = 0;
    for (let step = 0; step < 4; step += 1) {
      await page.mouse.wheel(0, 4000);
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(resolve)));
      const [decoders, tiles] = await page.evaluate(() => [
        (window as unknown as { decoders(): number }).decoders(),
        document.querySelectorAll('.tile').length,
      ]);
      max = Math.max(max, decoders ?? 0);
      expect(tiles).toBeLessThan(60);
    }
    expect(max).toBeLessThan(12);
    await page.waitForFunction(() => document.querySelectorAll('.poster.drawn').length > 4);
    expect(faults).toEqual([]);
  });

  it('loads ranges of its files and saves ratings immediately if mgw serves it, and mgw refuses requests from other pages', async () => {
    const args = ['bin/mgw.js', '--sandbox', 'jobs', 'gallery', '--batch', 'm', '--serve'];
    const child = spawn(process.execPath, args, { env: user.env, stdio: ['ignore', 'pipe', 'ignore'] });
    try {
      const served = String(await new Promise((resolve) => child.stdout.once('data', resolve))).trim();
      await open(served);
      await page.waitForFunction(() => document.querySelectorAll('.tile .bars').length === 3);
      await tile('evil').locator('.open').focus();
      const saved = page.waitForResponse((answer) => answer.request().method() === 'POST');
      await page.keyboard.press('3');
      expect((await saved).status()).toBe(204);
      expect((await mgw('jobs', 'show', '@m/evil', '--json')).json.job).toMatchObject({ rating: 3 });
      const href = await page.evaluate(
        () =>
          (JSON.parse(document.getElementById('data')?.textContent ?? '') as GalleryData).items[0]?.files[0]
            ?.href,
      );
      const part = await fetch(served + (href ?? ''), { headers: { range: 'bytes=4-7' } });
      expect([part.status, part.headers.get('content-range')]).toEqual([
        206,
        expect.stringMatching(/^bytes 4-7\/\d+$/),
      ]);
      const post = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{}' };
      expect((await fetch(`${served}ratings`, post)).status).toBe(403);
      expect((await fetch(served, { headers: { origin: 'http://evil.example' } })).status).toBe(403);
      expect((await fetch(new URL('/', served))).status).toBe(404);
      expect(await statusAs('evil.example', served)).toBe(403);
    } finally {
      child.kill();
    }
    expect(faults).toEqual([]);
  });
});

// Requests the page under another host name, which its owner can point to this machine (DNS rebinding).
function statusAs(host: string, address: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const sent = request(address, { headers: { host } }, (answer) => {
      answer.resume();
      resolve(answer.statusCode);
    });
    sent.once('error', reject).end();
  });
}
