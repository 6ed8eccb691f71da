import { Argument, type Command } from 'commander';
import type { Run } from '../command-tree.ts';
import type { Outcome } from '../output/outcome.ts';

const shells = ['bash', 'zsh', 'fish', 'powershell'] as const;
type Shell = (typeof shells)[number];

/** `mgw completion SHELL`: prints a script that gets the completions from `mgw __complete`. */
export function registerCompletion(command: Command, run: Run): void {
  command
    .addArgument(new Argument('<shell>', 'the shell that runs the script').choices(shells))
    .addHelpText('after', examples)
    .action((shell: Shell) => run(command, () => completion(shell)));
}

const examples = `
Models are completed from the last output of mgw models, without a request. For zsh, ~/.zsh/completions
must be on the fpath.

Examples:
  $ mkdir -p ~/.local/share/bash-completion/completions && \\
      mgw completion bash > ~/.local/share/bash-completion/completions/mgw
  $ mkdir -p ~/.zsh/completions && mgw completion zsh > ~/.zsh/completions/_mgw
  $ mkdir -p ~/.config/fish/completions && \\
      mgw completion fish > ~/.config/fish/completions/mgw.fish
  $ mgw completion powershell > mgw-completion.ps1`;

function completion(shell: Shell): Promise<Outcome> {
  const script = scripts[shell];
  return Promise.resolve({ json: { shell, script }, text: script.trimEnd() });
}

/** A completion script for bash 3.2 and newer. */
const bashCompletion = `# bash completion for mgw, written by "mgw completion bash"
_mgw() {
  local line=\${COMP_LINE:0:COMP_POINT} word='' words=() i kind head cur IFS=$' \\t\\n'
  # bash splits words at = and : too; parts with no space between them are one word.
  line=\${line#*"\${COMP_WORDS[0]}"}
  for ((i = 1; i <= COMP_CWORD; i++)); do
    cur=\${COMP_WORDS[i]}
    if [[ $line == [[:space:]]* ]]; then
      ((i > 1)) && words+=("$word")
      word=''
      line=\${line#"\${line%%[![:space:]]*}"}
    fi
    ((i == COMP_CWORD)) && cur=$line
    word+=$cur
    line=\${line#"$cur"}
  done
  words+=("$word")
  # Remove an open quote, which belongs to the shell.
  for i in "\${!words[@]}"; do
    case \${words[i]} in
      \\"*) words[i]=\${words[i]#?}; words[i]=\${words[i]%\\"} ;;
      \\'*) words[i]=\${words[i]#?}; words[i]=\${words[i]%\\'} ;;
    esac
  done
  word=\${words[\${#words[@]} - 1]}
  COMPREPLY=()
  # readline completes only the last of the pieces.
  cur=\${COMP_WORDS[COMP_CWORD]#[\\"\\']}
  [[ $cur == [=:] ]] && cur=''
  head=\${word%"$cur"}
  [[ $word == --*=* ]] && head=\${head#*=}
  local first=1
  while IFS= read -r cur; do
    if [[ -n $first ]]; then kind=$cur first=''; continue; fi
    cur=\${cur%%$'\\t'*}
    cur=\${cur#"$head"}
    COMPREPLY+=("$(printf '%q' "$cur")")
  done < <(mgw __complete -- "\${words[@]}" 2>/dev/null)
  case $kind in
    program*)
      compopt -o filenames 2>/dev/null
      while IFS= read -r cur; do COMPREPLY+=("$cur"); done < <(compgen -A command -A file -- "$word") ;;
    'files @')
      [[ $word == --*=* ]] && word=\${word#*=}
      compopt -o nospace 2>/dev/null
      if [[ $word != @* ]]; then COMPREPLY+=(@)
      else
        while IFS= read -r cur; do COMPREPLY+=("@$(printf '%q' "$cur")"); done < <(compgen -f -- "\${word#@}")
      fi ;;
    files)
      compopt -o filenames 2>/dev/null
      [[ $word == --*=* ]] && word=\${word#*=}
      while IFS= read -r cur; do COMPREPLY+=("$cur"); done < <(compgen -f -- "$word") ;;
  esac
  [[ \${#COMPREPLY[@]} -eq 1 && \${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  return 0
}

complete -F _mgw mgw
`;

/** A completion script for zsh. It can be sourced, or saved as `_mgw` on the fpath. */
const zshCompletion = `#compdef mgw
# zsh completion for mgw, written by "mgw completion zsh"

_mgw() {
  local -a answer values shown
  local kind line
  answer=("\${(@f)$(mgw __complete -- "\${(@Q)words[2,CURRENT-1]}" "\${(Q)PREFIX}" 2>/dev/null)}")
  kind=$answer[1]
  [[ $PREFIX == --*=* ]] && compset -P '*='
  for line in "\${(@)answer[2,-1]}"; do
    values+=("\${line%%$'\\t'*}")
    shown+=("\${line/$'\\t'/  -- }")
  done
  if (( \${#values} )); then
    if [[ $values == *= ]]; then compadd -S '' -l -d shown -a values
    else compadd -l -d shown -a values
    fi
  fi
  case $kind in
    program\\ *)
      (( CURRENT -= \${kind#* } + 1 ))
      words=("\${(@)words[\${kind#* } + 2,-1]}")
      _normal ;;
    'files @')
      if [[ $PREFIX == @* ]]; then compset -P '@'; _files
      else compadd -S '' -- @
      fi ;;
    files) _files ;;
  esac
}

if [[ \${zsh_eval_context[-1]} == loadautofunc ]]; then _mgw "$@"
else compdef _mgw mgw
fi
`;

/** A completion script for fish 3 and newer. */
const fishCompletion = `# fish completion for mgw, written by "mgw completion fish"
function __mgw_complete
    set -l token (commandline -ct)
    set -l words (commandline -opc)[2..-1]
    set -l answer (mgw __complete -- $words $token 2>/dev/null)
    set -l flag (string match -r -- '^--[a-z-]+=' $token)
    for line in $answer[2..-1]
        echo -- "$flag$line"
    end
    switch "$answer[1]"
        case 'program *'
            __fish_complete_subcommand --fcs-skip=(math (string split ' ' -- $answer[1])[2] + 1)
        case 'files @'
            for file in (__fish_complete_path (string replace -r -- '^(--[a-z-]+=)?@?' '' $token))
                echo -- "$flag@$file"
            end
        case files
            for file in (__fish_complete_path (string replace -r -- '^--[a-z-]+=' '' $token))
                echo -- "$flag$file"
            end
    end
end

complete -c mgw -f -a '(__mgw_complete)'
`;

/** A completion script for PowerShell 5.1 and newer. */
const powershellCompletion = `# PowerShell completion for mgw, written by "mgw completion powershell"
Register-ArgumentCompleter -Native -CommandName mgw -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition -or "$wordToComplete" -eq '' } |
        ForEach-Object { if ($_ -is [System.Management.Automation.Language.StringConstantExpressionAst]) { $_.Value } else { $_.Extent.Text } })
    # Older versions do not pass empty arguments.
    $options = @()
    if ("$wordToComplete" -eq '') { $options = @('--new-word') } else { $words += "$wordToComplete" }
    $answer = @(mgw __complete @options -- @words 2>$null)
    if ($answer.Count -eq 0) { return }
    $flag = if ("$wordToComplete" -match '^--[a-z-]+=') { $Matches[0] } else { '' }
    $answer | Select-Object -Skip 1 | ForEach-Object {
        $value, $about = $_ -split "\`t", 2
        if (-not $about) { $about = $value }
        $text = $flag + $value
        # @ begins an expression unless it is quoted.
        if ($text -match "[^\\w./=:+-]") { $text = "'" + ($text -replace "'", "''") + "'" }
        [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $about)
    }
    if ($answer[0] -like 'files*') {
        $at = if ($answer[0] -eq 'files @') { '@' } else { '' }
        $typed = "$wordToComplete".Substring($flag.Length).TrimStart('@')
        [System.Management.Automation.CompletionCompleters]::CompleteFilename($typed) | ForEach-Object {
            $path = $_.CompletionText.Trim("'")
            $text = $flag + $at + $path
            if ($text -match "[^\\w./\\\\=:+-]") { $text = "'" + ($text -replace "'", "''") + "'" }
            [System.Management.Automation.CompletionResult]::new($text, $_.ListItemText, $_.ResultType, $_.ToolTip)
        }
    }
}
`;

const scripts: Record<Shell, string> = {
  bash: bashCompletion,
  zsh: zshCompletion,
  fish: fishCompletion,
  powershell: powershellCompletion,
};
