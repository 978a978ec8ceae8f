"""Recognises reports of a problem, anywhere in a message of a person.

Unlike the phrases of `follow_ups.py`, which begin a message, these are searched for in each sentence. A sentence that
supposes (`if it doesn't work`) or asks for care (`make sure that nothing breaks`) reports nothing. Pasted errors are
searched for in all of the text, since people often paste them without a word.

The languages are those of the moments in `benchmarks/signal_sample/elsewhere.tsv`, and German.
"""

import re

import re2  # type: ignore[import-untyped]

_NOT = r"(?:(?:does|do|did|is|are|was|were|has|have|had|wo|ca|could|would|should)n'?t|not|cannot|no longer)"
_SLIGHTLY = r"(?:(?:still|all|also|a bit|a little|very|so|too|really|totally|completely|just|now|quite|pretty) )*"
_BAD = (
    "wrong|weird|broken|ugly|off|bad|worse|missing|empty|stuck|strange|incorrect|misaligned|messed|failing|crashing"
    "|erroring|gone|cut off|annoying|horrible|terrible|blank|odd|useless|unreadable|outdated|inconsistent|confusing"
)
_TROUBLE = "errors?|exceptions?|crash|warnings?|issues?|problems?|40[0-9]|50[0-9]"
_VERB = (
    r"work|compil|build|updat|load|start|show|appear|display|render|respond|fix|help|happen|exist|match|fit|sav|chang"
    r"|correct|right|good|true|doing (?:any|what)|used\b|make sense|made sense|what i|being|run|open|redirect|trigger"
    r"|persist|what we|acceptable|enough|there\b|implemented|what you|add up|found\b|improv|stick|seem"
)
ENGLISH = (
    rf"\b(?:{_NOT}|isnt|doesnt|dont|didnt|cant|wont|arent) "
    rf"(?:(?:seem to be|seem to|really|even|actually|yet|properly|correctly|quite|anymore|be|get|all|any) )*"
    rf"(?:{_VERB})",
    r"\b(?:i|we) (?:still |just |also )*(?:don'?t|do not|cannot|can'?t|can not|couldn'?t|could not) (?:even )?"
    r"(?:see|find|get|modify|press|open|access|use|like|want|select|click|change|log|make)\b",
    r"\bi (?:still )?(?:see|have|get|got) (?:no|nothing)\b",
    r"\bstill (?:\w+ )?(?:not|no|the same|looks?|see|gets?|getting|fails?|failing|broken|wrong|bad|errors?|isnt"
    r"|doesnt|dont|cant|produces?|shows?|showing|happen\w*|missing|slow|too|crash\w*|persists?|refers?|uses?|using)\b",
    rf"\b(?:is|are|was|it'?s|looks?|seems?|feels?|went|gone) {_SLIGHTLY}(?:{_BAD})\b",
    rf"\b(?:get|gets|got|getting|gives?|gave|throws?|threw|throwing|shows?|have|has|see|seeing|there is|there are"
    rf"|returns?|returned|produces?|says?|said|hit|hitting|encounter\w*) (?:\w+ ){{0,3}}(?:{_TROUBLE})\b",
    rf"^(?:(?:this|the|same|another|new|more|other) )+(?:{_TROUBLE})\b",
    rf"^(?:{_TROUBLE})(?: ?[:!,(]|\b(?: when| in| on| at| while| after)\b|$)",
    r"\b(?:nothing|none of (?:it|them|this|that)) (?:\w+ )?(?:happen|chang|work|show)",
    r"\bchanged nothing\b",
    r"\b(?:it|this|that|which|build|tests?|app|page|site|server|deploy\w*|action|command|script|you|we)\b[^.?!]{0,30}"
    r"\b(?:crash\w*|breaks|broke|fails|failed|destroys?|destroyed|ruined|erroring)\b",
    r"\b(?:issue|problem|error|bug)s? (?:\w+ )?(?:persist|remain|is still|are still)",
    r"\bmakes? no sense\b",
    r"\bnot (?:helping|helpful|related|relevant)\b",
    r"^unfortunately\b",
    r"\bwtf\b|\bw\.t\.f\b|\bwhat the (?:hell|fuck)|\bfucking hell\b|\byou fucked\b|\byou idiot\b",
    r"\bshould(?:n'?t| not| never)\b",
    r"^(?:it|this|that) (?:\w+ )?should\b(?! (?:also|additionally|then)\b)",
    r"\bi should be able\b",
    r"\b(?:it|this|that|they) needs? to be\b",
    r"\bwhy (?:did|didn'?t|do|are|aren'?t|can'?t|would|have|haven'?t|must|can) you\b"
    r"(?! (?:choose|pick|call|name|think|prefer|recommend|suggest))",
    r"\bwhy (?:does|do|is|are|was|were) (?:it|they|there|this|that|the|some)\b[^.?!]{0,40}"
    rf"\b(?:{_NOT}|still|no|without|only)\b",
    r"\byou(?:'re| are|re) (?:\w+ )?(?:editing|using|wrong|mistaken|missing|confus\w+|going|changing|ignoring"
    r"|not|in the)\b",
    r"\byou (?:still |also |just |have |even )*(?:forgot|missed|misunderstood|misread|broke|ignored|removed|deleted"
    r"|didn'?t|did not|never|keep \w+ing|skipped|messed|lost|left|overlooked|undid|overwrote|duplicated|changed the)\b",
    r"\bdid you (?:nuke|delete|remove|even|break|forget|ignore|really)\b",
    r"\bi (?:asked|said|meant|told you|wanted|specifically|explicitly)\b",
    r"\bi'?m specifically\b",
    r"\bi actually want(?:ed)?\b",
    r"\bwhat i (?:want|meant|asked|need)(?:ed)? (?:is|was)\b",
    r"\bi need .{1,60}!!",
    r"\bwe(?:'re| are) not (?:using|doing)\b",
    r"\bwe want (?:a|an|the) .{1,40}, not\b",
    r"\b(?:see|seem to be|there are|but|two) (?:\w+ ){0,2}duplicate",
    r"\b(?:is|are|it'?s|way|still|bit|looks?|seems?|far) (?:still |way |a bit |also )*too \w+",
    rf"\bbut (?:now )?(?:no|not|we don'?t|i don'?t|it|the \w+|there (?:is|are)|i (?:can'?t|still))\b[^.?!]{{0,25}}"
    rf"\b(?:{_NOT}|no|dont|still|only|empty|wrong)\b",
    r"\b(?:yes|nice|good|sun), but no\b",
    r"\bbut no \w+ and no\b",
    r"^now (?:we|i|it|there|the \w+)\b[^.?!]{0,25}(?:n'?t|not|no|nothing)\b",
    r"\bkill (?:this|that|it)\b",
    r"\b(?:has|have|needs?) to be redone\b",
    r"^(?:please )?(?:redo|try again)\b",
    r"\bi undid\b",
    r"\b(?:check|search|look|think)\b[^.!?]{0,40}\b(?:and properly|properly|better|more carefully|carefully)\b",
    r"^(?:this is )?(?:weird|strange)\b",
    r"\bsomething(?:'s| is) (?:\w+ )?(?:wrong|off|weird)",
    r"\bfor some reason\b",
    r"\b(?:aggr[ae]vated|annoyed|frustrat\w+|disappoint\w+)\b",
    r"\b(?:when|whenever|after|once|as soon as) i (?:try|tried|click|clicked|press|pressed|drag|run|ran)\b"
    r"(?![^.?!]*\bshould\b)",
    r"\bi (?:don'?t|do not) like\b",
    r"\bit doesn'?t warrant\b",
    r"\bthat was not\b",
    r"\bnot, it\b",
    r"\bas we (?:said|agreed|discussed)\b",
    r"\blike i said\b",
    r"\bi already (?:said|told|did|have)\b",
    r"\bcannot be (?:reached|found|opened|loaded)\b",
    r"\bis not (?:a|an|the|used)\b",
    r"\bremove (?:it|that|this)\b",
    r"\b(?:tests?|it|they|builds?|both|all) (?:still |all |now |both )*fail\b",
    r"\bwe agreed\b",
    r"\b(?:do|does|did) nothing\b",
    r"\bwhy (?:is|are) (?:it|this|that|they|the \w+) (?:still |now )*(?:so|not|no|still)\b",
    r"\bover-?(?:complicat|engineer)",
    r"\b(?:shows?|showing|uses|using|loads?|returns?) (?:the |an? )?(?:old|wrong|same)\b",
    r"\bonly (?:shows?|works?|half)\b",
    r"^too (?:verbose|long|short|complex|complicated|slow|small|big|much|many)\b",
    r"^(?:please )?stop \w+ing\b",
    r"\bisn'?t that\b",
    r"\bdidn'?t (?:we|you|i)\b",
    r"\bnot seeing\b|\bgr[ae]yed out\b|\bagain ?!{2,}",
    r"\bthe only (?:problem|issue|thing wrong)\b|^the (?:problem|issue) is\b|\ba problem with the\b",
    r"\bi (?:was|am|'m) talking about\b|\bso (?:please )?fix (?:that|this|it)\b|\bwhy is that\b",
    r"^fix .{1,60}, (?:they|it|its|it's|he'?s|she'?s|there)\b",
    r"(?<!so )(?<!that )(?<!if )\b(?:it|he|she|they|this|which) "
    r"(?:(?:does|do|is|are|was|wo|ca)n'?t|arnt|doesnt|dont|isnt|cant) \w+",
    r"\bi (?:can )?only (?:see|get|have)\b",
    r"\bremember\?",
    r"\bi don'?t think (?:that|this|it|they|so)\b",
    r"\bi thought (?:it|that|you|we|this)\b",
    r"^are you sure\b",
    r"\bfails to\b|\bkeeps \w+ing\b|\bwhole point\b",
    r"\bback to (?:the )?(?:default|old|same|previous)\b",
    r"\b(?:crap|crappy|garbage|sucks?|awful)\b",
    r"\b(?:that|this)(?:'s| is| was) not\b",
    r"\bi think (?:it|this|that) should be\b",
    r"\bweird\b",
    r"\bnone of the\b[^.?!]{0,40}\b(?:can|works?|is|are)\b",
    r"\bgives? me this\b",
    r"\bcheck the logic\b",
    r"\bdifferent (?:in|from) (?:the )?old\b",
    r"\binstead of (?:what|doing|the one)\b",
)
SPANISH = (
    r"\bno (?:(?:me|se|te|lo|la|le|los|las|nos) )?(?:veo|vea|funciona\w*|anda\w*|carga\w*|aparece\w*|muestra\w*|puedo"
    r"|pude|sale\w*|sirve\w*|guarda\w*|actualiza\w*|trae\w*|deja\w*|ve\b|ven\b|sacaste|hiciste|aplicaste|cambiaste|pusiste|quiero"
    r"|corresponde|era|es (?:eso|lo|as[ií]|correct[oa])|est[aá] (?:bien|mostrando|cargando)|creo que)\b",
    r"\bsigue(?:n)? (?:sin|apareciendo|saliendo|dando|igual|fallando|mostrando|viniendo|el|la|con|mal)\b",
    r"\b(?:hay|tengo|tenemos|da|tira|sale|dice|surge|aparece) (?:\w+ ){0,3}(?:error(?:es)?|problemas?|algo (?:raro|mal)"
    r"|vac[ií]o)\b",
    r"\best[aá]n? (?:\w+ )?(?:mal|vac[ií]o|roto|solapad\w+|cortad\w+|duplicad\w+)\b",
    r"\bsin embargo no\b",
    r"\bse (?:rompi[oó]|ven? (?:mal|solapad\w+|cortad\w+)|perdi[oó])\b",
    r"\blo que te ped|\bte (?:ped[ií]|dije)\b|\bdijimos\b|\bacord[aá]te\b|\bf[ií]jate que\b",
    r"\bcorreg[ií]\b|\bcorregir este\b",
    r"\bpor ?qu[eé] (?:no|algun\w+|aparece\w*|sigue\w*|me|hiciste|cambiaste)\b",
    r"\bdeja de\b|\bse (?:desborda|corta|sale|rompe)\w*|\bsoluciona (?:eso|esto|este)\b|\bse ven? (?:muy )?mal\b",
    r"\bde lo esperado\b",
    r"\beso no\b",
    r"\bfaltan? (?:el|la|los|las|un|una|mostrar)\b",
)
FRENCH = (
    r"\b(?:ne |n'|n )[^.?!,]{1,40}?\b(?:pas|plus|rien|jamais)\b",
    r"\b(?:marche|fonctionne|bon|est) pas\b",
    r"\brien ne\b",
    r"\b(?:j'ai|il y a|on a|encore|toujours) (?:\w+ ){0,3}(?:erreurs?|problèmes?|bugs?)\b",
    r"\btoujours pas\b",
    r"\bplus du tout\b|\bn'?est ?plus\b",
    r"\bpas (?:bon|ça|du tout|les bons?|ce que)\b",
    r"\bje voulais\b|\bj'avais demandé\b|\bj'ai (?:dit|demandé)\b",
    r"\bdécalée?s?\b|\bmanquent?\b|\bdégo[uû]té",
    r"\bpourquoi (?:tu|as-tu|n'as|est-ce que tu)\b",
    r"\bcependant je ne\b",
    r"\bmauvais\w*\b",
)
PORTUGUESE = (
    r"\b(?:segue|continua|ainda|deu|dá|tem|temos|com|aparece\w*) (?:\w+ ){0,3}(?:erros?|errado|problemas?)\b",
    r"\bnão (?:funciona\w*|funcionou|apareceu?|mudou|carrega\w*|precisa|é isso|era|consigo|deu|roda\w*|abre|criou"
    r"|atualizou|gostei|encontr\w+)\b",
    r"\bestá (?:errado|quebrado|faltando)\b",
    r"\bfaltou\b|\bvocê (?:esqueceu|não)\b|\berrado\b",
    r"^antes de (?:criar|fazer|continuar|implementar)\b",
)
GERMAN = (
    r"\b(?:funktioniert|geht|klappt|läuft|passt|stimmt|kommt|erscheint|startet|lädt|hilft|ändert)\b[^.?!]{0,25}"
    r"\b(?:nicht|nix|nichts)\b",
    r"\bnicht (?:das|so|richtig|korrekt|was ich)\b",
    r"\bimmer noch\b|\bschon wieder\b|\bfalsch\b|\bfehl(?:t|en)\b|\bkaputt\b",
    r"\b(?:bekomme|kriege|habe|gibt|kommt|erhalte|wirft|steht)\b[^.?!]{0,30}\bfehler",
    r"\bich (?:wollte|meinte|sagte|hatte gesagt|sehe (?:kein\w*|nicht\w*))\b",
    r"\bwarum (?:hast|machst|benutzt|nimmst|löschst|änderst) du\b",
    r"\bdu hast\b[^.?!]{0,40}\b(?:vergessen|gelöscht|übersehen|nicht)\b",
    r"\bsoll(?:te|ten|en)?\b[^.?!]{0,25}\bnicht\b",
)
ITALIAN = (
    r"\bnon (?:funzion\w+|va\b|parte|part\w+ più|sembra\w*|riesco|si (?:apre|vede|carica)|vedo"
    r"|è (?:giusto|corretto|quello)|appare|carica)",
    r"\bancora (?:errore|non)\b|\bsbagliat",
)
CZECH = (r"\b(?:nefunguje|nejde|nevidím|chyba|špatně|nepoužiteln\w+|rozhodil|pořád (?:ne|stejn)\w*)\b",)
CHINESE = (
    "还是(?:会|没|不|无法|一样|同样|报|出|显示|之前|老|原来|旧|有问题|这个?问题|那个|\\d)",
    "还有.{0,12}(?:闪|问题|错|bug)",
    "还残留|残留",
    "没(?:有)?(?:反应|变化|显示|修复|隔离|生效|出来|成功|解决|办法|看到|效果|更新|起作用|被|正确|任何|改)",
    "没(?:用|对)",
    "不(?:对|行|了(?!解)|显示|工作|起作用|生效|正确|应该|是这样|是这个|一致|可用|见了)",
    "无法(?!.{0,6}吗)",
    "报错|出错|错了",
    "错误(?!处理|信息)",
    "(?:又|还|一直|请求|连接|登录|上传|下载|部署|编译|构建|运行|加载|保存|创建)失败|失败了",
    "太(?:小|大|慢|短|少|丑|乱)|太[长多]了",
    "有(?:问题|bug)(?!吗|么)",
    "问题不能",
    "而不是|不是这|这不是|那不是",
    "仍(?:然|旧)",
    "忽悠|瞎改|乱改|别急着|盲目|不要乱",
    "思考一下再",
    "为什么.{0,6}(?:不|没|还|又|会)",
    "不回调|不能.{0,4}吗",
    "叠在|重叠|错位|闪烁|飙升|卡住|卡死|崩溃|白屏|丢失|消失",
    "怎么(?:还|又|没|不)",
    "不要把|别把|(?:那|这)么(?:大|小|多|长|慢)|回到了",
    "(?:保存|显示|返回|生成|加载)的.{0,8}不是",
    "应该.{1,20}(?:而|不是|才对)",
)
JAPANESE = (
    "エラー(?!処理|ハンドリング|メッセージを)",
    "でき(?:ない(?!よう)|ません|なかった)",
    "動(?:か|き)(?:ない|ません)",
    "(?:表示|反映|保存)され(?:ない|ません|ていない|ていません)",
    "違(?:う|い|って)(?!.{0,3}を教)",
    "直って(?:い)?(?:ない|ません)",
    "おかしい|間違|失敗|消え",
    "うまくいか",
    "しないで|せずに|ではなく",
)
RUSSIAN = (
    r"\bне (?:работа\w+|реагиру\w+|получа\w+|получил\w+|добав\w+|видно|вижу|отобража\w+|запус\w+|созда\w+|проход\w+"
    r"|наход\w+|могу|пустил\w*|откры\w+|правильно|то\b|так\b|помог\w+|измени\w+|появ\w+|отправля\w+|приход\w+|сохран\w+"
    r"|удает\w+|удал\w+|показыва\w+|использу\w+)",
    r"^ошибк",
    r"\b(?:выда[её]т|выскакива\w+|есть|опять|снова|с|такая|та же) (?:\w+ )?ошибк",
    "упал|сломал|пропал|белый экран",
    "почему[- ]то|ничего не",
    "неправильно|неверно",
    r"вс[её] равно|до сих пор|зациклился",
    r"\bнет (?:оплаты|этих|данных|кнопки)\b",
    r"\bстатус pending\b",
    r"\bнадо было\b|\bя же\b",
)
KOREAN = ("안 ?(?:돼|되|됩|나와|보여)", "에러|오류|틀렸|잘못|여전히",)  # fmt: skip

_ALPHABETIC = (*ENGLISH, *SPANISH, *FRENCH, *PORTUGUESE, *GERMAN, *ITALIAN, *CZECH)
_AROUND = re.compile(r"\(\?<?[=!]")
_LATIN = re.compile("|".join(_ALPHABETIC), re.MULTILINE)
_LATIN_ASCII = re2.compile("(?m)" + "|".join(one for one in _ALPHABETIC if not _AROUND.search(one)))
"""Takes 20 us where `_LATIN` takes 1,300; in ASCII both agree on words and their borders"""
_LATIN_AROUND = re.compile("|".join(one for one in _ALPHABETIC if _AROUND.search(one)), re.MULTILINE)
"""Patterns with lookaround, which RE2 does not support"""
_OTHER = re.compile("|".join((*CHINESE, *JAPANESE, *RUSSIAN, *KOREAN)), re.MULTILINE)
_ASKS = re.compile(
    r"(?:(?:ok|okay|now|next|also|and|please|then|but|alright|great|yes),? )*(?:(?:if|in case|what if|unless)\b"
    r"|(?:make sure|ensure|be sure|can you make sure|should (?:i|we))\b"
    r"|(?:add|create|write|make (?!it (?:work|not))|implement|generate|build (?:a|an|the)|include|explain|describe"
    r"|translate|document|handle|log|list|extend|introduce|prepare|draft|how (?:do|does|can|would|should|to|long|many)"
    r"|what(?:'s| is| are| does| do| errors| happens| about)|are there|is there|i (?:also )?(?:want (?:a|an|to)"
    r"|need (?:a|an|to)|would like|'d like)|we (?:need|want) to|let'?s|let me|please let)\b"
    r"|(?:can|could|would) (?:you|we) (?:make|add|have|also|please (?:add|make))\b"
    r"|si\b|s'il|wenn|falls|se\b|caso|est-ce que|agreg[aá]|a[ñn]ad[ei]|crea(?:r|me)?\b|ajoute|cr[ée]e|füge|erstell"
    r"|schreib|baue|adicione|crie|добавь|создай|напиши|если|如果|假如|万一|添加|新增|增加|创建|もし)"
)
"""Beginnings of sentences that suppose something or ask for something new, and report nothing"""
_WISH = re.compile(r"\b(?:can|could|would) (?:you|we) (?:please )?(?:make|add|have|also)\b")
"""Words that introduce a request: the rest of the sentence states a wish, not a problem"""
_ELSEWHERE = re.compile(r"\b(?:another|other|old|previous) (?:project|job|repo|company|app)\b")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+|…")
_ERROR = re.compile(
    r"\b(?:[A-Z]\w*)?(?:Error|Exception)\b ?[:({\[]|\bTraceback \(most recent|\bFailed to (?:compile|load|fetch|run)\b"
    r"|\bBUILD FAILED\b|\bnpm (?:ERR!|error)|\bUncaught\b|\bpanic: |\bcommand not found\b|\bENOENT\b"
    r"|\bSegmentation fault|\b(?:fatal|FATAL|ERROR)\b ?:|\bexit(?:ed with)? (?:code|status) [1-9]|\bno function clause"
    r"|\bAPPLICATION FAILED\b"
    r"|\b(?:TS|E)\d{4}:|\berror\[E\d+\]|\[ERROR\]|\bpermission denied\b|\[Error\]|\bException in thread\b"
    r"|\b[45]0\d \([A-Z][\w ]+\)"
    r"|\bUnexpected token\b|\bcannot be bound\b|\bis not recognized as\b|❌"
)
_ASKS_FOR_LOGS = re.compile(
    r"\b(?:share|send|paste|show me|provide|post|tell me|let me (?:know|see)|copy)\b[^.\n]{0,80}"
    r"\b(?:logs?|output|console|errors?|results?|see|happens|appears?|message)\b"
    r"|\b(?:compart\w+|mu[eé]str\w+|pas[aá]me|mand[aá]me|env[ií]\w+|dec[ií]me|dime)\b[^.\n]{0,80}"
    r"|\b(?:dites|dis|envoie|envoyez|montre\w*|colle)[- ]?moi\b|(?:发给我|告诉我|提供|贴给我|粘贴)"
    r"|(?:教えて|貼って|送って)"
    r"|(?:пришлите|покажите|скопируйте|отправьте)",
    re.IGNORECASE,
)
_ASKS_WHAT = re.compile(r"\bwhat(?:'s| is| does| are) (?:this|that|it|these)\b", re.IGNORECASE)
_CONDITION = re.compile(r"\b(?:if|si|wenn|falls|se|если)\b|如果|若|もし|場合", re.IGNORECASE)
ANSWER_END = 500  # characters at the end of an answer that are searched for a request


def complains(own: str) -> bool:
    """True if one of the sentences (lower case) reports a problem."""
    return any(_reports(sentence.strip()) for sentence in _SENTENCE.split(own))


def _reports(said: str) -> bool:
    if not said or _ASKS.match(said) or _ELSEWHERE.search(said):
        return False
    found = reported_at(said)
    wish = _WISH.search(said) if found >= 0 else None
    if found >= 0 and (wish is None or wish.start() > found):
        return True
    return not said.isascii() and _OTHER.search(said) is not None


def reported_at(said: str) -> int:
    """Index of the first words of a language in Latin letters that report a problem; -1: there are none."""
    patterns = (_LATIN_ASCII, _LATIN_AROUND) if said.isascii() else (_LATIN,)
    return min((found.start() for one in patterns if (found := one.search(said)) is not None), default=-1)


def error_pasted(text: str, answer: str) -> bool:
    """True if the message contains a pasted error that the answer did not ask for."""
    return _ERROR.search(text) is not None and not _ASKS_WHAT.search(text) and not asks_for_logs(answer)


def asks_for_logs(answer: str) -> bool:
    """True if the answer ends by asking to see an output; `If it fails, send me the log` does not count."""
    end = answer[-ANSWER_END:]
    for found in _ASKS_FOR_LOGS.finditer(end):
        begin = max(end.rfind(mark, 0, found.start()) for mark in (". ", "\n", "。", "! ", "? "))
        if not _CONDITION.search(end, max(begin, 0), found.start()):
            return True
    return False
