import { ESLint } from 'eslint';
import tseslint from 'typescript-eslint';
import { expect, it } from 'vitest';

const cwd = new URL('..', import.meta.url).pathname;
// The rules tested here do not need types, which take seconds to load.
const eslint = new ESLint({ cwd, overrideConfig: tseslint.configs.disableTypeChecked as never });

async function rulesBroken(text: string, filePath: string): Promise<(string | null)[]> {
  const [result] = await eslint.lintText(text, { filePath });
  return (result?.messages ?? []).map(({ ruleId }) => ruleId);
}

it.each([
  ['no-restricted-globals', "export const reply = fetch('http://127.0.0.1');\n"],
  ['no-restricted-properties', "export const reply = globalThis.fetch('http://127.0.0.1');\n"],
  ['@typescript-eslint/no-restricted-imports', "export { request } from 'undici';\n"],
])("the linter (rule %s) forbids the global fetch and undici's index in src", async (rule, text) => {
  expect(await rulesBroken(text, 'src/installation.ts')).toContain(rule);
});

it("the linter allows fetch in the sandbox and in the gallery's page", async () => {
  const text = "export const reply = fetch('http://127.0.0.1');\n";
  expect(await rulesBroken(text, 'src/sandbox/server.ts')).not.toContain('no-restricted-globals');
});

it.each([
  ['no-warning-comments', '/** Undefined where there is none. */\nexport const job = undefined;\n'],
  ['no-restricted-syntax', "export const message = 'allowed is a number';\n"],
  ['no-warning-comments', '// The part of it that is under way.\nexport const job = undefined;\n'],
  ['no-restricted-syntax', 'export const message = `nobody reads ${String(process.pid)}`;\n'],
])('the linter (rule %s) forbids certain phrases in comments and messages', async (rule, text) => {
  expect(await rulesBroken(text, 'src/installation.ts')).toContain(rule);
});
